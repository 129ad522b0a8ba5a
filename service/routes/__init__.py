"""Thin HTTP routes."""
