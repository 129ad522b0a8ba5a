"""The report of a fitted bundle, one HTML page."""
