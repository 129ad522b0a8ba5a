"""The whole page, from what has been measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs.paper import images, questions, regression
from docs.paper.results import results

PAGE = Path(__file__).parents[1] / "paper.md"
INTRODUCTION = """# The paper's experiments

Daxberger et al., "Bayesian Deep Learning via Subnetwork Inference" (ICML 2021), repeated with this project's own
engine. This page is generated from [benchmarks/results](../benchmarks/results) by `python -m docs.paper`; no measured
number in it is typed.

`python -m benchmarks paper_...` repeats an experiment, and `make bench-paper` all of them, with `--fast` at a size for
two cores: small networks, thousands of examples. The full size (ResNet-18, S = 42,438, the paper's training recipe)
needs a GPU. An interrupted run goes on where it stopped. Data come from the folder that `PROBITY_DATA_DIR` names, or
are downloaded from their publishers.

"ours, Wasserstein" is the paper's method with another rule for the prior precision: the smallest one that costs at
most 0.05 nats of held-out log-likelihood, the default of `FitConfig`. The row "best held-out lambda" follows the
paper's grid search. The other methods are not given these 0.05 nats, except two controls that spend them without a
subnetwork: one temperature for all inputs, and a diagonal posterior over all weights. Compare with them to see what the
subnetwork itself is worth. Laplace methods take the curvature from a part of the training data, as if there were no
more. IVON, by the authors of VOGN, stands in for VOGN.

Two things explain most of what differs from the paper's order. A prior precision that is best on held-out data leaves
almost no uncertainty under shift: what the budget leaves is most of the gain, and a temperature that spends the same
budget gets much of it too. And with one prior precision for every selection, as in the paper, weights that matter less
leave less uncertainty, so that a selection may win by its amount alone; with one budget, random selection does as well
as the largest variances or better, and what remains between selections is how they rank unusual inputs (the AUROC).
"""
SECTIONS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("toy", regression.toy),
    ("uci", regression.uci),
    ("mnist", images.section),
    ("cifar", images.section),
    ("sizes", questions.sizes),
    ("questions", questions.questions),
)


def page() -> str:
    """Every section that has results, in the paper's order."""
    found = [make(result) for name, make in SECTIONS for result in results(name)]
    return "\n".join([INTRODUCTION, *found])
