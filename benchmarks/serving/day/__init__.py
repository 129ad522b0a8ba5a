"""A simulated day of two replicas: real processes, real requests and a real Prometheus; only time is simulated."""
