"""The service under load: saturation and latency, peers that wrap the same network, and a long run."""
