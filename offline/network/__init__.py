"""The user's network: a copy of it, its weights, its layers."""
