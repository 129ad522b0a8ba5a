"""Clients of others, unmodified, each in an environment and a process of its own."""
