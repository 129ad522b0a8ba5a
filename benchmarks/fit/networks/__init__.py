"""The networks of the benchmarks: real architectures with random weights."""
