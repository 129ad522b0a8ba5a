"""How close a subnetwork's predictive comes to the full network's, by strategy and share of the weights.

Networks of 2 x 50 ReLU units on two toys and two UCI tables, where the full covariance is at hand. The measure is
the mean over points of KL(N(f, v_full + sigma^2) || N(f, v_S + sigma^2)); the means are equal.
"""

import json
from collections.abc import Callable
from time import perf_counter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.core.folders import CACHE
from benchmarks.core.settings import Settings, Values, write_json
from benchmarks.experiments.selection.bound import gaussian_divergence, least_divergence
from benchmarks.experiments.selection.data import Problem, toy, uci
from benchmarks.experiments.selection.scores import Fitted, greedy, orders
from benchmarks.experiments.selection.summary import print_table, summarise
from probity.offline.laplace.prior import prior_share

Array = npt.NDArray[Any]
SHARES = (0.01, 0.03, 0.1, 0.5)
Scaling = Literal["subnetwork", "none"]
SCALINGS: tuple[Scaling, ...] = ("subnetwork", "none")
GREEDY_SHARE = 0.1  # its cost grows with the square of the size
WIDTH, STEPS, BATCH, LEARNING_RATE = 50, 2500, 128, 0.01
TRAINING_POINTS = 1000
SEEDS = 5
PROBLEMS: dict[str, tuple[Callable[[int], Problem], float]] = {
    # Weight decay of wine and kin8nm: the best of four on a tenth of one gap split's training rows.
    "matern_1d": (lambda seed: toy("matern_1d", seed), 1e-4),
    "my_1d": (lambda seed: toy("my_1d", seed), 1e-4),
    "wine-standard": (lambda seed: uci("wine", "standard", seed), 5e-3),
    "wine-gap": (lambda seed: uci("wine", "gap", seed), 5e-3),
    "kin8nm-standard": (lambda seed: uci("kin8nm", "standard", seed), 1e-3),
    "kin8nm-gap": (lambda seed: uci("kin8nm", "gap", seed), 1e-3),
}


def train(problem: Problem, weight_decay: float, seed: int) -> nn.Module:
    """Adam with one cycle of the learning rate on mean squared error + weight_decay * |w|^2."""
    torch.manual_seed(seed)
    features = problem.x.shape[1]
    model = nn.Sequential(
        nn.Linear(features, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
    )
    x, y = torch.as_tensor(problem.x).float(), torch.as_tensor(problem.y).float()
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=STEPS)
    for _ in range(STEPS):
        rows = torch.randint(0, len(x), (BATCH,))
        optimiser.zero_grad()
        penalty = torch.stack([p.square().sum() for p in model.parameters()]).sum()
        loss = (model(x[rows]) - y[rows]).square().mean() + weight_decay * penalty
        loss.backward()
        optimiser.step()
        schedule.step()
    return model


def variances(fitted: Fitted, indices: Tensor, used: float, jacobians: dict[str, Tensor]) -> dict[str, Array]:
    """v_S(x) + sigma^2 (n,) of every set of points: one Cholesky factor, one triangular solve a set."""
    precision = fitted.ggn[indices][:, indices] + used * torch.eye(len(indices), dtype=torch.float64)
    lower = torch.linalg.cholesky(precision)
    solved = {k: torch.linalg.solve_triangular(lower, j[:, indices].T, upper=False) for k, j in jacobians.items()}
    return {k: (s.square().sum(0) + fitted.sigma_noise**2).numpy() for k, s in solved.items()}


def one_network(problem: Problem, weight_decay: float, seed: int) -> dict[str, Any]:
    """Every strategy, share and scaling on one network."""
    fitted = Fitted(train(problem, weight_decay, seed), problem, seed)
    jacobians = {name: fitted.jacobian(points) for name, points in problem.points.items()}
    kept = np.random.default_rng(seed).permutation(len(problem.x))[:TRAINING_POINTS]
    jacobians["training"] = fitted.training[torch.as_tensor(kept)]
    full = variances(fitted, torch.arange(fitted.total), fitted.prior_precision, jacobians)
    noise = fitted.sigma_noise**2
    sizes = {share: round(share * fitted.total) for share in SHARES}
    chosen = {
        name: {share: dict.fromkeys(SCALINGS, order[:size].sort().values) for share, size in sizes.items()}
        for name, order in orders(fitted).items()
    }
    cut = [size for share, size in sizes.items() if share <= GREEDY_SHARE]
    by_size = {scaling: greedy(fitted, cut, scaling) for scaling in SCALINGS}
    chosen["greedy"] = {
        share: {scaling: by_size[scaling][size] for scaling in SCALINGS} for share, size in sizes.items() if size in cut
    }
    return {
        "problem": problem.name,
        "seed": seed,
        "weights": fitted.total,
        "examples": len(problem.x),
        "sigma_noise": fitted.sigma_noise,
        "prior_precision": fitted.prior_precision,
        "degrees_of_freedom": fitted.degrees_of_freedom,
        "bound_on_training": {
            str(share): least_divergence(full["training"], noise, size * noise / len(problem.x))
            for share, size in sizes.items()
        },
        "divergence": {
            name: {
                str(share): _divergences(fitted, by_scaling, jacobians, full) for share, by_scaling in shares.items()
            }
            for name, shares in chosen.items()
        },
    }


def _divergences(
    fitted: Fitted, by_scaling: dict[Scaling, Tensor], jacobians: dict[str, Tensor], full: dict[str, Array]
) -> dict[str, dict[str, float]]:
    """Scaling -> set of points -> mean KL."""
    found: dict[str, dict[str, float]] = {}
    for scaling, indices in by_scaling.items():
        used = fitted.prior_precision * prior_share(len(indices), fitted.total, scaling)
        other = variances(fitted, indices, used, jacobians)
        found[scaling] = {name: float(gaussian_divergence(full[name], other[name]).mean()) for name in full}
    return found


def remembered(name: str, seed: int) -> dict[str, Any]:
    """The result of `one_network`, from the cache where an interrupted run left it."""
    file = CACHE / f"selection-{name}-{seed}.json"
    if file.exists():
        kept: dict[str, Any] = json.loads(file.read_text())
        return kept
    start = perf_counter()
    make, weight_decay = PROBLEMS[name]
    run = one_network(make(seed), weight_decay, seed) | {"weight_decay": weight_decay}
    print(f"{name}, seed {seed}: {perf_counter() - start:.0f} s", flush=True)
    write_json(file, run)
    return run


def run(settings: Settings) -> Values:
    """Train and score what is not in the cache, on one thread."""
    torch.set_num_threads(1)
    names = settings.choose(list(PROBLEMS), ["matern_1d", "wine-gap"])
    pairs = [(name, seed) for seed in range(settings.choose(settings.seeds or SEEDS, 1)) for name in names]
    runs = [remembered(*pair) for pair in settings.track(pairs, "Networks", len(pairs))]
    summary = summarise(runs)
    print_table(summary)
    return {"summary": summary, "runs": runs}
