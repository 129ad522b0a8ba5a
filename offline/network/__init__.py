"""The user's network: its copy, weights and layers."""
