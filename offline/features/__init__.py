"""Feature scores: how far a network's own activations lie from those of the training data."""
