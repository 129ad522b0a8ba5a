"""Choices that the paper leaves open, compared under one budget: link, temperature, variances, the budget itself."""
