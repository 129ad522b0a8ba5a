"""From a fit to a bundle on disk."""
