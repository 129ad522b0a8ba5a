"""Intervals of regressions: one noise for all, noise by the input, and conformal intervals of another package."""
