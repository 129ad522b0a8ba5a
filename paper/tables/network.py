"""One network on one split: trained, and given a posterior over subnetworks of the size of each smaller network."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.experiments.kept import trained_once
from demur.offline.data.likelihood import Regression
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import accumulate_ggn
from demur.offline.selection.live_weights import is_live
from paper.fitted import Fitted, Problem
from paper.regression_networks import (
    GaussianModel,
    Patience,
    Shape,
    train_network,
    without_biases,
)
from paper.tables.data import Split, Table
from paper.tables.leverage import sampled_leverage
from paper.tables.posterior import Curvature, Judged, Rows, Search, WholeMatrix, fit

SHAPES = Shape(50, 1), Shape(100, 1), Shape(50, 2), Shape(100, 2)
LEVERAGE_EXAMPLES = 512
FIRST_PRIOR = 1.0  # where the search for lambda begins
GGN_ROWS = 2048


@dataclass(frozen=True)
class Limits:
    """What a run is of; None: all rows."""

    patience: Patience
    validation_rows: int | None  # for lambda; early stopping uses all
    test_rows: int | None


@dataclass(frozen=True)
class UciFitted(Fitted):
    """With the noise that was learnt with the network."""

    sigma: float

    def curvature(self) -> Curvature:
        """Over all training data, in float64."""
        x, y = (torch.as_tensor(values) for values in (self.problem.x, self.problem.y))
        if len(x) < self.total:
            return Rows(self.jacobian(self.problem.x).div_(self.sigma))
        jacobian = make_jacobian(self.exact, self.layout, torch.arange(self.total), x[:2])
        pairs = zip(torch.split(x, GGN_ROWS), torch.split(y, GGN_ROWS), strict=True)
        ggn = accumulate_ggn(jacobian, pairs, Regression(1, self.sigma), rows=GGN_ROWS).ggn
        return WholeMatrix(ggn.div_(self.sigma**2))

    def judged(self, table: Table) -> Judged:
        with torch.no_grad():
            mean = self.exact(torch.as_tensor(table.x))
        return Judged(mean.numpy(), self.jacobian(table.x), table.y, self.sigma)

    def by_leverage(self, prior: float) -> Tensor:
        """Positions (D,), those with the largest sampled leverage first; prior: lambda of the full network."""
        x = self.problem.x
        drawn = np.random.default_rng(self.seed).permutation(len(x))[:LEVERAGE_EXAMPLES]
        weight = len(x) / len(drawn) / self.sigma**2
        return torch.argsort(sampled_leverage(self.jacobian(x[drawn]), weight, prior), descending=True, stable=True)


def trained(split: Split, shape: Shape, patience: Patience, number: int) -> UciFitted:
    """The network with the best validation weights, from the cache where it is there."""
    model = GaussianModel(shape.network(split.train.x.shape[1], number))
    label = f"paper-uci-{split.name}-{number}-{shape.name}-{patience.epochs}"
    train, validation = split.train.tensors(), split.validation.tensors()
    trained_once(label, model, lambda: train_network(model, train, validation, patience, number))
    problem = Problem(split.name, split.train.x, split.train.y, {})
    return UciFitted(without_biases(model.network), problem, number, float(model.log_sigma.detach().exp()))


def orders(fitted: UciFitted, diagonal: Tensor) -> dict[str, Tensor]:
    """Strategy -> positions, best first; `diagonal` (D,) of H.

    "wasserstein" is the paper's, by diag(H)^-1 whatever lambda: weights without curvature come first.
    """
    live = is_live(diagonal)
    drawn = torch.as_tensor(np.random.default_rng(fitted.seed).permutation(fitted.total)).double()
    scores = {
        "wasserstein": -diagonal,
        "wasserstein, live": torch.where(live, -diagonal, -torch.inf),
        "gradient": diagonal,
        "random": drawn,
    }
    return {name: torch.argsort(score, descending=True, stable=True) for name, score in scores.items()}


@dataclass(frozen=True)
class Comparison:
    """What every row of one network shares; `original`: log p of a target in original units is smaller by this."""

    fitted: UciFitted
    curvature: Curvature
    validation: Judged
    test: Judged
    search: Search
    original: float

    @classmethod
    def of(cls, fitted: UciFitted, split: Split, limits: Limits, search: Search) -> "Comparison":
        validation = fitted.judged(split.validation.first(limits.validation_rows))
        test = fitted.judged(split.test.first(limits.test_rows))
        return cls(fitted, fitted.curvature(), validation, test, search, float(np.log(split.scale)))

    def row(self, method: str, indices: Tensor, start: float) -> dict[str, Any]:
        """One posterior; the search for lambda begins at `start`."""
        chosen = indices.sort().values
        found = fit(self.curvature, chosen, self.fitted.total, self.validation, self.test, self.search, start)
        return {
            "method": method,
            "S": len(indices),
            "prior_precision": found.prior_precision,
            "validation": found.validation - self.original,
            "test": found.test - self.original,
        }

    def along(self, method: str, order: Tensor, sizes: list[int]) -> list[dict[str, Any]]:
        """One row a size, ascending; each search begins where the one before ended."""
        rows: list[dict[str, Any]] = []
        for size in sizes:
            rows.append(self.row(method, order[:size], rows[-1]["prior_precision"] if rows else FIRST_PRIOR))
        return rows


def one_network(split: Split, shape: Shape, number: int, limits: Limits, search: Search) -> dict[str, Any]:
    """Test log-likelihoods in original units: at the MAP, of every strategy and smaller size, and of all weights."""
    fitted = trained(split, shape, limits.patience, number)
    compared = Comparison.of(fitted, split, limits, search)
    features = split.train.x.shape[1]
    sizes = sorted(size for other in SHAPES if (size := other.weights(features)) < fitted.total)
    ranked = orders(fitted, compared.curvature.diagonal).items()
    rows = [row for method, order in ranked for row in compared.along(method, order, sizes)]
    full = compared.row("full", torch.arange(fitted.total), rows[-1]["prior_precision"] if rows else FIRST_PRIOR)
    if sizes:
        rows += compared.along("leverage", fitted.by_leverage(full["prior_precision"]), sizes)
    return {
        "problem": split.name,
        "split": number,
        "network": shape.name,
        "weights": fitted.total,
        "map": compared.test.log_likelihood(0.0) - compared.original,
        "rows": [*rows, full],
    }
