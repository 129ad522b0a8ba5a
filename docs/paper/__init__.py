"""docs/paper.md, written from benchmarks/results: the paper's figures and ours."""
