"""Intervals inside a gap of the training data, and what tells that an input lies in it."""
