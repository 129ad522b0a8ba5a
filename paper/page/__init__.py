"""docs/paper.md, written from paper/results: the paper's figures and ours."""
