"""`python -m benchmarks`: list the benchmarks; `python -m benchmarks NAME [--quick]`: run one of them, or "all"."""

import typer

from benchmarks.registry import PROGRAM

if __name__ == "__main__":
    typer.run(PROGRAM.main)
