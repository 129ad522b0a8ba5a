"""What several tests share: bundles, servers, clients, networks."""
