"""API keys, and signatures of bundles."""
