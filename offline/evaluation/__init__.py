"""The quality of predictions."""
