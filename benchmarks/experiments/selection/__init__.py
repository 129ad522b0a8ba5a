"""Strategies of selection on toys and UCI tables."""
