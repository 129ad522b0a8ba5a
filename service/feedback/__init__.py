"""Answered predictions, remembered until their labels come."""
