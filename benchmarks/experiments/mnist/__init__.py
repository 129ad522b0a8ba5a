"""MNIST: its data and networks, and strategies under shift."""
