"""Races, growth curves and a zoo of real networks: `python -m benchmarks` lists them."""
