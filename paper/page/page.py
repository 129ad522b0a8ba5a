"""The whole page, and the full tables behind it, from what has been measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.core.markdown import as_csv
from paper.page import images, regression, sizes
from paper.page.results import TABLES, Section, results

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"
INTRODUCTION = """# The paper's experiments

Daxberger et al., "Bayesian Deep Learning via Subnetwork Inference" (ICML 2021), repeated with this project's own
engine. `python -m paper page` writes this page, and the tables it links to, from `paper/results`; no
measured number in it is typed.

`python -m paper NAME` repeats an experiment, and `make paper` all of them with `--fast`, the size for two cores: small
networks, thousands of examples. An interrupted run goes on where it stopped. `--rows` measures some methods, tables or
data sets only. Without `--fast` the size is the paper's: ResNet-18 with D = 11.2 million (ResNet-50 with
`mnist_resnet50` and `cifar_resnet50`), S = 42,438, three seeds and the paper's recipes of training. That takes a GPU,
some 180 GB of memory and days; **it has not been run, so nothing here says whether the paper's own numbers are
reached**.

## How to read it

A network has D weights, and a subnetwork S of them has a posterior; the other weights keep their trained values. A
smaller prior precision lambda leaves more uncertainty. Passes: the price of a prediction in forward passes of the plain
network, for a batch of 16; bundles in onnxruntime, everything else in torch.

* `wasserstein` is the paper's selection, the weights with the largest marginal variances; `random` draws them. Of ours,
  `gradient` takes those with the largest gradients, `leverage` those that most change the fit, and `novelty` those that
  tell ordinary from shifted inputs.
* "ours" spends a budget: lambda is the smallest one that costs at most 0.05 nats of held-out log-likelihood. "Best
  held-out lambda" follows the paper's grid search instead; held-out images are like the training images, so it leaves
  little uncertainty. "MAP" is the plain network. These rows have no [added weights](choosing.md#added-weights).
* "Tempered within the budget" divides all logits by one temperature that costs the same 0.05 nats, and knows nothing of
  the input; "diagonal Laplace, within the budget" spends them on a diagonal posterior over all weights. These are the
  controls: a subnetwork is worth what it gains over them, and not over methods that spend nothing.
* Rows with "0.005 nats" have the defaults of `FitConfig` before variances had a gate. They are of the same networks,
  trained again on one thread, where rounding differs. IVON stands in for VOGN.
"""
SECTIONS: tuple[tuple[str, Callable[[dict[str, Any]], Section]], ...] = (
    ("toy", regression.toy),
    ("uci", regression.uci),
    ("gaps", regression.gaps),
    ("mnist", images.section),
    ("cifar", images.section),
    ("mnist_resnet50", images.section),
    ("cifar_resnet50", images.section),
    ("sizes", sizes.section),
)


def files() -> dict[Path, str]:
    """Every file that is written, with its content: the page in the paper's order, and the tables."""
    found = [make(result) for name, make in SECTIONS for result in results(name)]
    tables = {TABLES / f"{name}.csv": as_csv(rows) for section in found for name, rows in section.tables.items()}
    return {PAGE: "\n".join([INTRODUCTION, *(section.text for section in found)])} | tables


def write() -> None:
    """Write the page and the tables."""
    TABLES.mkdir(parents=True, exist_ok=True)
    for path, content in files().items():
        path.write_text(content)
