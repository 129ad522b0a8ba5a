"""HTTP routes: thin, one file for each group of endpoints."""
