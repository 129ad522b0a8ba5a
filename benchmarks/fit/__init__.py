"""Benchmarks of the offline job: speed and memory, cost, growth, and the networks and layers that it takes."""
