"""Toy regression (the paper's figure 2)."""
