"""`python -m paper`: list the experiments; `python -m paper NAME [--fast]`: run one; `page`: write the page."""

import typer

from benchmarks.core.command import Program
from paper.page.page import write
from paper.page.results import RESULTS
from paper.registry import EXPERIMENTS

PAGE = ("writes docs/paper.md and the tables behind it from the results", write)

if __name__ == "__main__":
    typer.run(Program("paper", EXPERIMENTS, RESULTS, {"page": PAGE}).main)
