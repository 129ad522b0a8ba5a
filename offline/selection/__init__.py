"""Which weights form the subnetwork."""
