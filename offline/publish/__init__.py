"""Publishing: from a fit to a bundle on disk."""
