"""Speed, memory, serving and experiments: `python -m benchmarks` lists them.

core: what all share; fit: the offline job; serving: the service under load; experiments: what predictions and
guarantees are worth.
"""
