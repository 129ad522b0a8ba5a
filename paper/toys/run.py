"""The paper's toys: how much of the full network's predictive uncertainty a subnetwork preserves.

Daxberger et al. (ICML 2021), figure 2 and appendix "Toy Experiments": 2 x 50 ReLU units, D = 2,600 weights without
biases, GGN Laplace with lambda_S = 3 S / D, linearised predictive. The noise is learnt jointly with the network, and
refitted at the end by maximum likelihood: the root mean square residual on the training data.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings, Values
from benchmarks.datasets import toy as toy_data
from benchmarks.experiments.kept import run_once, trained_once
from paper.fitted import Problem, standardising
from paper.regression_networks import GaussianModel, Patience, Shape, train_network, without_biases
from paper.toys.orders import selections
from paper.toys.predictives import WHOLE, PaperFitted, dead_among, subnetwork, whole_network

Array = npt.NDArray[Any]
TOYS = "matern_1d", "my_1d", "agw_1d", "wiggle_1d"
SHOWN = "matern_1d"  # the paper's, two clusters
SHARES = 0.5, 0.03, 0.01
SHAPE = Shape(50, 2)
NEAR, MARGIN, POINTS = 0.15, 1.0, 400  # in standard deviations of the inputs


def problem(name: str) -> Problem:
    """All examples, standardised, and a grid of inputs: "near" the data, and "away", between and beyond clusters."""
    columns = toy_data.columns(name)
    x, y = (standardising(columns[:, [k]])(columns[:, [k]]) for k in (0, 1))
    grid = np.linspace(x.min() - MARGIN, x.max() + MARGIN, POINTS)[:, None]
    near = np.abs(grid - x.T).min(1) <= NEAR
    return Problem(name, x, y, {"near": grid[near], "away": grid[~near]})


def trained(found: Problem, epochs: int, seed: int) -> nn.Module:
    """The network at the MAP, from the cache where it is there; only its weights are trainable from now on."""
    data = torch.as_tensor(found.x).float(), torch.as_tensor(found.y).float()
    model, whole = GaussianModel(SHAPE.network(1, seed)), Patience(epochs, epochs, every=100)
    trained_once(
        f"paper-toy-{found.name}-{seed}-{epochs}", model, lambda: train_network(model, data, data, whole, seed)
    )
    return without_biases(model.network)


def one_network(found: Problem, epochs: int, seed: int, greedy_shares: tuple[float, ...]) -> dict[str, Any]:
    """Every method and share on one network: mean KL(full || method) in nats by set of points."""
    fitted = PaperFitted(trained(found, epochs, seed), found, seed)
    jacobians = {name: fitted.jacobian(points) for name, points in found.points.items()}
    sizes = {round(share * fitted.total): str(share) for share in SHARES}
    whole = whole_network(fitted, jacobians)
    chosen = selections(fitted, list(sizes), [round(share * fitted.total) for share in greedy_shares])
    parts = {
        name: {sizes[size]: subnetwork(fitted, indices, jacobians) for size, indices in by_size.items()}
        for name, by_size in chosen.items()
    }
    predictives = {name: {_share(name, fitted): whole[name]} for name in WHOLE} | parts
    outcome = {
        "problem": found.name,
        "seed": seed,
        "weights": fitted.total,
        "dead_weights": dead_among(fitted, torch.arange(fitted.total)),
        "divergence": {
            name: {share: divergences(whole["full"], other) for share, other in by_share.items()}
            for name, by_share in predictives.items()
        },
    }
    return outcome | ({"picture": _picture(fitted, predictives)} if found.name == SHOWN and seed == 0 else {})


def _share(name: str, fitted: PaperFitted) -> str:
    """Of the weights that have a distribution."""
    if name == "MAP":
        return "0"
    return f"{len(fitted.head) / fitted.total:.3g}" if name.startswith("last layer") else "1"


def divergences(full: dict[str, Array], other: dict[str, Array]) -> dict[str, float]:
    """Set of points -> mean KL(full || other) with the same mean: (r - 1 - log r) / 2, r = full / other."""
    ratios = {name: full[name] / other[name] for name in full}
    return {name: float(np.mean((ratio - 1 - np.log(ratio)) / 2)) for name, ratio in ratios.items()}


def _picture(fitted: PaperFitted, predictives: dict[str, dict[str, dict[str, Array]]]) -> dict[str, Any]:
    """Mean and standard deviations over the grid, and the data, for the plot."""
    points = np.concatenate(list(fitted.problem.points.values()))[:, 0]
    order = np.argsort(points)
    with torch.no_grad():
        mean = fitted.exact(torch.as_tensor(points[order, None]))[:, 0].numpy()
    std = {
        name: {share: _short(np.sqrt(np.concatenate(list(kept.values())))[order]) for share, kept in by_share.items()}
        for name, by_share in predictives.items()
    }
    data = {"x": _short(fitted.problem.x[:, 0]), "y": _short(fitted.problem.y[:, 0])}
    return {"x": _short(points[order]), "mean": _short(mean), "std": std, "data": data}


def _short(values: Array) -> list[float]:
    rounded: list[float] = np.round(values, 4).tolist()
    return rounded


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Toy -> method -> share -> "near" and "away" -> mean and standard deviation over seeds."""
    return {
        name: _over_seeds([run["divergence"] for run in runs if run["problem"] == name])
        for name in dict.fromkeys(run["problem"] for run in runs)
    }


def _over_seeds(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        method: {
            share: {points: _spread([one[method][share][points] for one in found]) for points in kept}
            for share, kept in by_share.items()
        }
        for method, by_share in found[0].items()
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}


def _remembered(name: str, seed: int, epochs: int, greedy_shares: tuple[float, ...]) -> dict[str, Any]:
    """`one_network`, from the cache where an interrupted run left it."""
    scale = {"epochs": epochs, "greedy_shares": greedy_shares}
    label = f"paper-toy-{name}-{seed}-{epochs}"
    return run_once(label, scale, lambda: one_network(problem(name), epochs, seed, greedy_shares))


def run(settings: Settings) -> Values:
    """Train and compare what is not in the cache, on one thread; `MeasurementError` for a part of it."""
    if settings.rows:
        raise MeasurementError(f"--rows: found {', '.join(settings.rows)}, expected none: the toys are measured whole")
    torch.set_num_threads(1)
    names = settings.scale(TOYS, TOYS, TOYS[:1])
    seeds = settings.scale(settings.seeds or 10, settings.seeds or 3, 1)
    epochs = settings.scale(40_000, 20_000, 500)
    greedy_shares = settings.scale(SHARES, SHARES, SHARES[1:])
    pairs = [(name, seed) for name in names for seed in range(seeds)]
    runs = [_remembered(*pair, epochs, greedy_shares) for pair in settings.track(pairs, "Networks", len(pairs))]
    return {"setting": {"epochs": epochs, "seeds": seeds}, "runs": runs}
