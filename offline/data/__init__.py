"""What the user's data give: batches, held-out examples, likelihoods, shifts."""
