"""What the container gives this process: CPUs, memory, and variables that Kubernetes sets."""
