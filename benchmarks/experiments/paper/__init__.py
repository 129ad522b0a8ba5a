"""The experiments of Daxberger et al. (ICML 2021), repeated with this project's own engine.

`python -m benchmarks paper_...` runs one of them; `--fast` is the size for two cores.
"""
