"""The whole page, from what has been measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paper.page import gaps, images, questions, regression
from paper.page.results import results

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"
INTRODUCTION = """# The paper's experiments

Daxberger et al., "Bayesian Deep Learning via Subnetwork Inference" (ICML 2021), repeated with this project's own
engine. This page is generated from [paper/results](../paper/results) by `python -m paper page`; no measured
number in it is typed.

`python -m paper NAME` repeats an experiment, and `make paper` all of them, with `--fast` at a size for
two cores: small networks, thousands of examples. An interrupted run goes on where it stopped: outcomes are kept in a
cache, and a run says which it took from there. `--rows` measures some methods (`mnist`,
`cifar`), tables or data sets only. Data come from the folder that `PROBITY_DATA_DIR` names; what is not there is
downloaded from its publisher.
Without `--fast` the size is the paper's: ResNet-18, or ResNet-50 with `mnist_resnet50` and
`cifar_resnet50`, S = 42,438 and the paper's recipes of training. That takes a GPU, some 180 GB of memory and
days; it has not been run, so nothing here says whether the paper's own numbers are reached.

## How to read it

A network has D weights, and a subnetwork S of them has a posterior; the other weights keep their trained values. The
prior precision lambda says how far weights may be from zero: a smaller one leaves more uncertainty.

* `wasserstein` is the paper's selection, the weights with the largest marginal variances; `random` draws them. Of ours,
  `gradient` takes those whose gradients are largest, `leverage` those that most change the fit, `novelty` and
  `novelty-sampling` those that tell ordinary from shifted inputs, `greedy` adds them one by one, and `auto` compares
  several. `live` leaves out weights that no training input moves.
* "Last layer" has the posterior of the last layer's weights; in the toy it is a part of the full one, as in the paper,
  and "last layer, alone" the posterior with all other weights fixed. "Five last blocks" are four more last blocks,
  trained on the first network's trunk.
* "ours" spends a budget: lambda is the smallest one that costs at most 0.05 nats of held-out log-likelihood, below the
  best that any lambda or the plain network reaches there. On test images that may cost more or less. "Best held-out
  lambda" follows the paper's grid search. "MAP" is the plain network. These rows have the paper's setting
  (`added_weights=False`).
* Rows with `auto`, and the default, were measured when `auto` compared strategies on synthetic shifts; it no longer
  does.
* Rows with "0.005 nats" have the defaults of `FitConfig`: a fitted temperature, and a tenth of that budget below the
  best one. "Added weights" are [a second head](choosing.md#added-weights) whose variance grows with the distance from
  the training data.
* "Tempered within the budget" divides all logits by one temperature that costs the same 0.05 nats, and knows nothing of
  the input; "diagonal Laplace, within the budget" spends them on a diagonal posterior over all weights. These are the
  controls: what a subnetwork is worth is what it gains over them, and not over methods that spend nothing.
* Laplace methods take the curvature from the part of the training data that each section states, without scaling it to
  all of them. IVON, by the authors of VOGN, stands in for VOGN. Dropout, ensembles, SWAG and the diagonal posterior are
  written here, because every row shares one network, one loop of training and one clock.
"""
SECTIONS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("toy", regression.toy),
    ("uci", regression.uci),
    ("gaps", gaps.section),
    ("mnist", images.section),
    ("cifar", images.section),
    ("mnist_resnet50", images.section),
    ("cifar_resnet50", images.section),
    ("sizes", questions.sizes),
    ("questions", questions.questions),
)


def write() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """Every section that has results, in the paper's order."""
    found = [make(result) for name, make in SECTIONS for result in results(name)]
    return "\n".join([INTRODUCTION, *found])
