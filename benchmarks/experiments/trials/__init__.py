"""Trials of ideas that Probity might take up: a learned spectrum of the prior, and a second mean."""
