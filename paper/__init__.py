"""The experiments of Daxberger et al. (ICML 2021), repeated with this project's own engine.

`python -m paper` lists them; `--fast` is the size for two cores. docs/paper.md is written from their results.
"""
