"""MNIST turned by 0 to 180 degrees or spoilt, and Fashion-MNIST: which weights give the best uncertainty.

Every strategy gets the same number of weights and the same uncertainty budget: the smallest prior precision that costs
at most 0.05 nats of held-out log-likelihood. `auto` chooses twice: told of nothing, so that it judges by every kind of
synthetic shift, and told that rotation is what will come.
"""

from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.kept import run_once
from benchmarks.experiments.mnist.choices import Material, auto, strategies
from benchmarks.experiments.mnist.data import images, labels, normalise, rotate
from benchmarks.experiments.mnist.networks import LAST_BLOCK, trained
from benchmarks.experiments.mnist.summary import ANGLES, AUTOMATIC, print_table, summarise
from offline.data.held_out import HeldOut
from offline.data.likelihood import Classification
from offline.data.shifts import synthetic_shifts
from offline.evaluation.auroc import auroc
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.laplace.posterior import PRIOR_GRID, Spectrum
from offline.laplace.prior import PLAIN, PriorChoice, PriorSweep, choose_prior, grid_log_likelihood, prior_share
from offline.network.call_order import CallOrder
from offline.selection.subnetwork import Subnetwork
from service.maths.predictive import entropy, link_approx

Array = npt.NDArray[Any]
BUDGET = 0.05
DIGIT_CLASSES = Classification(10)
TRAINED = 58_000
SIZES = {"cnn": 750, "resnet": 750}
EPOCHS = {"cnn": 3, "resnet": 2}
SPOILT = ("noise", "blur", "inversion", "erasing")
SPOILT_SEED = 1000  # draws that no selection has seen


@dataclass(frozen=True)
class Scale:
    """How many digits: for training, for H_S, held out, for each test set, and for `auto` to judge and to fit on."""

    curvature: int
    held_out: int
    test: int
    judged: int
    fitted: int
    train: int = TRAINED
    rows: int = 25


FULL = {"cnn": Scale(4000, 1000, 500, 500, 4000), "resnet": Scale(2000, 500, 200, 200, 2000)}
QUICK = {name: Scale(300, 100, 60, 30, 100, 3000) for name in FULL}
SEEDS = 3


@dataclass(frozen=True)
class Digits:
    """Training and held-out digits, named test sets, and the classes of the test digits."""

    inputs: Tensor
    targets: Tensor
    held_out: HeldOut
    tests: dict[str, Tensor]
    classes: Array


@dataclass(frozen=True)
class Subnetworks:
    """Several subnetworks of one network, served by one Jacobian over the union of their weights."""

    jacobian: SubnetworkJacobian
    columns: dict[str, Tensor]

    @classmethod
    def of(cls, material: Material, indices: dict[str, Tensor]) -> "Subnetworks":
        union = torch.unique(torch.cat(list(indices.values())))
        return cls(material.job.jacobian(union), {n: torch.searchsorted(union, i) for n, i in indices.items()})


def load_digits(scale: Scale) -> Digits:
    inputs, targets = normalise(images("mnist", "train")), labels("mnist", "train")
    pixels, classes = images("mnist", "t10k")[: scale.test], labels("mnist", "t10k")[: scale.test]
    tests = {angle: normalise(rotate(pixels, int(angle))) for angle in ANGLES}
    tests |= synthetic_shifts(tests["0"], SPOILT_SEED, SPOILT)
    tests["fashion"] = normalise(images("fashion-mnist", "t10k")[: scale.test])
    held_out = HeldOut(inputs[TRAINED:][: scale.held_out], targets[TRAINED:][: scale.held_out])
    return Digits(inputs[: scale.train], targets[: scale.train], held_out, tests, classes.numpy())


def choose(
    material: Material, name: str, scale: Scale
) -> tuple[dict[str, Tensor], dict[str, float], dict[str, Subnetwork]]:
    """Every strategy's weights, the seconds that each took, and what `auto` found, told of nothing or of rotation.

    A whole last layer larger than the subnetwork is left out, and so is what another strategy chose already.
    """
    chosen: dict[str, Tensor] = {}
    seconds: dict[str, float] = {}
    for strategy, function in strategies(LAST_BLOCK[name]).items():
        start = perf_counter()
        try:
            indices = function(material)
        except ValueError as error:
            print(f"  {strategy}: left out, {error}", flush=True)
            continue
        if not any(torch.equal(indices, other) for other in chosen.values()):
            chosen[strategy], seconds[strategy] = indices, perf_counter() - start
        print(f"  {strategy}: {perf_counter() - start:.0f} s", flush=True)
    results = {}
    for label, shifts in AUTOMATIC.items():
        start = perf_counter()
        results[label] = auto(material, scale.judged, scale.fitted, shifts)
        chosen[label], seconds[label] = results[label].indices, perf_counter() - start
        print(f"  {label}: {seconds[label]:.0f} s, {results[label].explanation}", flush=True)
    return chosen, seconds, results


def curvatures(subnetworks: Subnetworks, digits: Digits, scale: Scale) -> dict[str, Spectrum]:
    """H_S of each subnetwork from part of the training data, scaled to all of it."""
    sums = {n: torch.zeros(len(c), len(c), dtype=torch.float64) for n, c in subnetworks.columns.items()}
    for x in torch.split(digits.inputs[: scale.curvature], scale.rows):
        mean, j = subnetworks.jacobian(x)
        root = DIGIT_CLASSES.sqrt_hessian_product(j, mean).flatten(0, 1)
        for name, columns in subnetworks.columns.items():
            part = root[:, columns].double()
            sums[name].addmm_(part.T, part)
    factor = len(digits.inputs) / min(scale.curvature, len(digits.inputs))
    return {name: Spectrum.of(total * factor) for name, total in sums.items()}


def variances(
    subnetworks: Subnetworks, spectra: dict[str, Spectrum], precisions: dict[str, Array], x: Tensor, rows: int
) -> tuple[Array, dict[str, Array]]:
    """Means (n, K), and for each subnetwork the variances (n, K, G) at its G values of lambda_S."""
    means: list[Array] = []
    found: dict[str, list[Array]] = {name: [] for name in spectra}
    for chunk in torch.split(x, rows):
        mean, j = subnetworks.jacobian(chunk)
        means.append(mean.double().numpy())
        for name, spectrum in spectra.items():
            found[name].append(spectrum.variances(j[:, :, subnetworks.columns[name]], precisions[name]))
    return np.concatenate(means), {name: np.concatenate(parts) for name, parts in found.items()}


def within_budget(mean: Array, variance: Array, used: Array, targets: Array) -> tuple[PriorChoice, float, float]:
    """The smallest lambda within the budget; held-out log-likelihood with it and of the plain network."""
    scores = grid_log_likelihood(mean, variance, targets, DIGIT_CLASSES).mean(1)
    sweep = PriorSweep(PRIOR_GRID, used, np.zeros_like(used), scores[:-1], float(scores[-1]))
    choice = choose_prior(sweep, "budget", BUDGET)
    return choice, float(scores[:-1][choice.precision == PRIOR_GRID][0]), float(scores[-1])


def evaluate(outcomes: dict[str, tuple[Array, Array]], classes: Array) -> dict[str, Any]:
    """One subnetwork on all test sets, (mean, variance) each: log-likelihoods, and AUROC of the predictive entropy."""
    entropies = {name: entropy(link_approx(mean, variance, 1.0)) for name, (mean, variance) in outcomes.items()}
    digits = {name: outcome for name, outcome in outcomes.items() if name != "fashion"}
    return {
        "log_likelihood": {
            n: float(DIGIT_CLASSES.log_likelihood(m, v, classes).mean()) for n, (m, v) in digits.items()
        },
        "auroc": {name: auroc(entropies["0"], scores) for name, scores in entropies.items() if name != "0"},
        "mean_entropy": {name: float(scores.mean()) for name, scores in entropies.items()},
    }


def one_network(name: str, seed: int, scale: Scale, tag: str) -> dict[str, Any]:
    """All strategies on one trained network."""
    digits = load_digits(scale)
    model = trained(name, seed, digits.inputs, digits.targets, EPOCHS[name], tag)
    material = Material(model, digits.inputs, digits.targets, digits.held_out, SIZES[name], seed)
    indices, seconds, automatic = choose(material, name, scale)
    subnetworks = Subnetworks.of(material, indices)
    spectra = curvatures(subnetworks, digits, scale)
    total = material.job.layout.total
    used = {n: PRIOR_GRID * prior_share(len(i), total, "subnetwork") for n, i in indices.items()}
    tried = {n: np.append(u, PLAIN) for n, u in used.items()}
    mean, held = variances(subnetworks, spectra, tried, digits.held_out.inputs, scale.rows)
    targets = digits.held_out.targets.numpy()
    choices = {n: within_budget(mean, held[n], used[n], targets) for n in held}
    chosen = {n: np.array([choice.used]) for n, (choice, _, _) in choices.items()}
    tests = {t: variances(subnetworks, spectra, chosen, x, scale.rows) for t, x in digits.tests.items()}
    order = CallOrder.of(material.job.network, digits.inputs[:1])
    plain = evaluate({t: (m, np.zeros_like(m)) for t, (m, _) in tests.items()}, digits.classes)
    rows = {"plain network": plain | {"forward_passes": 1.0}}
    for n, i in indices.items():
        outcome = evaluate({t: (m, v[n][:, :, 0]) for t, (m, v) in tests.items()}, digits.classes)
        names = [parameter.name for parameter, _ in material.job.layout.locate(i)]
        rows[n] = outcome | {
            "size": len(i),
            "forward_passes": order.forward_passes(names, 10),
            "prior": asdict(choices[n][0]),
            "held_out_log_likelihood": choices[n][1],
            "held_out_log_likelihood_plain": choices[n][2],
            "selection_seconds": seconds[n],
            "dead_on_scored_digits": int((~torch.isin(i, material.living.candidate_weights)).sum()),
            "weights_by_parameter": {p.name: len(where) for p, where in material.job.layout.locate(i)},
        }
    return {
        "network": name,
        "seed": seed,
        "weights": total,
        "dead_candidates": len(material.context.candidate_weights) - len(material.living.candidate_weights),
        "accuracy": float((tests["0"][0].argmax(1) == digits.classes).mean()),
        "auto": {
            label: {"explanation": result.explanation, "table": [asdict(score) for score in result.candidates]}
            for label, result in automatic.items()
        },
        "strategies": rows,
    }


def remembered(name: str, seed: int, scale: Scale, tag: str) -> dict[str, Any]:
    """The result of `one_network`, from the cache where an interrupted run of the same scale left it."""
    return run_once(f"mnist-{name}-{seed}-{tag}", asdict(scale), lambda: one_network(name, seed, scale, tag))


def run(settings: Settings) -> Values:
    """Train and score what is not in the cache, on one thread."""
    torch.set_num_threads(1)
    scales, tag = settings.choose((FULL, "full"), (QUICK, "quick"))
    pairs = [(name, seed) for seed in range(settings.choose(settings.seeds or SEEDS, 1)) for name in SIZES]
    runs = [remembered(*pair, scales[pair[0]], tag) for pair in settings.track(pairs, "Networks", len(pairs))]
    summary = summarise(runs)
    print_table(summary)
    return {"budget_nats": BUDGET, "summary": summary, "runs": runs}
