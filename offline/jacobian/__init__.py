"""Derivatives of the outputs with respect to the subnetwork's weights."""
