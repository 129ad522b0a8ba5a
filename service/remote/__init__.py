"""Bundles in other places: on the Hugging Face Hub, in buckets, in registries of containers, in folders elsewhere."""
