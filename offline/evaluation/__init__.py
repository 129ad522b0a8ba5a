"""How good predictions are."""
