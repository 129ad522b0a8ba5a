"""UCI regression (the paper's figure 3)."""
