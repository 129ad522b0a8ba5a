"""Out-of-distribution scores: each alone, the fused one, and those of the plain network, on the same trained networks.

Weights of a fused score are fitted as a fit does, to synthetic shifts of held-out data, and never to a kind of data
that it is judged on: for rotated digits without rotations, for noise without noise. The posterior is over weights of
the head, the cheapest there is. A second bundle has feature scores in its graph too.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.corruptions import ROTATIONS
from benchmarks.experiments.frontier import run as frontier
from benchmarks.experiments.frontier.data import Problem, load, normalise
from benchmarks.experiments.frontier.networks import EPOCHS, trained
from benchmarks.experiments.mnist import data as mnist_data
from offline.config import FitConfig
from offline.data.held_out import HeldOut
from offline.data.shifts import finite_shifts, kind_of_shift
from offline.evaluation.auroc import auroc
from offline.features.scores import candidates
from offline.fit import TUNING_SHARE, fit_bundle
from offline.laplace.scoring import SHIFTED_EXAMPLES, compare, fit_fused, scores_of
from offline.runtime.progress import Track
from service.inference.prediction import uncertainties
from service.inference.predictor import GraphOutputs, Predictor
from service.maths.fused_score import FusedScore
from service.maths.predictive import class_probabilities
from service.maths.score_outputs import ClassOutputs
from service.maths.scores import CLASSIFICATION_SCORES, Scoring, SingleScoreName

Array = npt.NDArray[Any]
CHOICES: tuple[Literal["fused", "auto"], ...] = ("fused", "auto")
NAMED: tuple[SingleScoreName, ...] = ("nearest_neighbours", "residual")  # no part of a fused score
WITH_FEATURES = " with feature scores"
PLAIN = ("predictive_entropy", "energy", "max_logit")
ACCEPTED = 0.95
SEEDS, BATCH, ROUNDS = 1, 50, 300
SIZE = 750
CONFIG = FitConfig(selection="novelty-sampling", within=("head",))


@dataclass(frozen=True)
class Foreign:
    """Data of another kind than the network knows; kind: that of the synthetic shifts that resemble it, if any."""

    inputs: Tensor
    kind: str | None = None


def foreign_data(problem: Problem) -> dict[str, Foreign]:
    """By name: other things, and for digits rotations, for photos noise and things in grey."""
    found = {name: Foreign(x) for name, x in problem.foreign.items()}
    if problem.name == "mnist":
        return found | {name: Foreign(problem.tests[name], "rotation") for name in ROTATIONS}
    count = len(problem.classes)
    clothes = F.pad(mnist_data.images("fashion-mnist", "t10k")[:count], (2, 2, 2, 2)).expand(-1, 3, -1, -1)
    pixels = torch.rand(problem.tests["usual"].shape, generator=torch.Generator().manual_seed(0))
    return found | {"Fashion-MNIST": Foreign(normalise(clothes)), "noise": Foreign(normalise(pixels), "noise")}


def rates(usual: Array, foreign: Array) -> dict[str, float]:
    """AUROC, and the share of foreign examples below the score that accepts 95 % of the usual ones."""
    accepted = foreign <= np.quantile(usual, ACCEPTED)
    return {"auroc": auroc(usual, foreign), "fpr": float(accepted.mean())}


class Scored:
    """One bundle, and what the scores are made of for any inputs."""

    def __init__(self, predictor: Predictor, others: list[Predictor], model: nn.Module, held_out: HeldOut) -> None:
        """others: of the same network, with other feature scores."""
        self._predictor, self._others = predictor, others
        tuning, _ = held_out.split(TUNING_SHARE, CONFIG.seed)
        self.ordinary = self.outputs(tuning.inputs)
        shifts = finite_shifts(model, tuning.inputs[:SHIFTED_EXAMPLES], CONFIG.seed)
        self.shifted = {name: self.outputs(x) for name, x in shifts.items()}

    def outputs(self, inputs: Tensor) -> ClassOutputs:
        """Mean, variance and probabilities."""
        found, *others = (_run(predictor, inputs) for predictor in (self._predictor, *self._others))
        features = {name: scores for one in (found, *others) for name, scores in one.features.items()}
        return _outputs(found.mean, found.variance, features)

    def choices(self, kind: str | None) -> dict[str, Scoring]:
        """What a fit would choose with score="fused" and score="auto" from the shifts of other kinds, without and with
        feature scores."""
        shifted = {name: found for name, found in self.shifted.items() if kind_of_shift(name) != kind}
        without = {name: _without(found) for name, found in shifted.items()}
        found: dict[str, Scoring] = {}
        for score in CHOICES:
            found[score] = compare(FitConfig(score=score), _without(self.ordinary), without).scoring
            with_them = {name: compared(outputs) for name, outputs in shifted.items()}
            found[score + WITH_FEATURES] = compare(FitConfig(score=score), compared(self.ordinary), with_them).scoring
        return found


def _run(predictor: Predictor, inputs: Tensor) -> GraphOutputs:
    return GraphOutputs.concatenate([predictor.outputs(x.numpy()) for x in torch.split(inputs, BATCH)])


def compared(outputs: ClassOutputs) -> ClassOutputs:
    """With those feature scores of which a fit makes a fused score."""
    kept = candidates(FitConfig(score="fused", feature_scores=True))
    return replace(outputs, features={name: scores for name, scores in outputs.features.items() if name in kept})


def _outputs(mean: Array, variance: Array, features: Mapping[str, Array]) -> ClassOutputs:
    return ClassOutputs(mean, variance, class_probabilities(mean, variance, 1.0), 1.0, features)


def _without(outputs: ClassOutputs) -> ClassOutputs:
    return replace(outputs, features={})


def _plain(outputs: ClassOutputs) -> ClassOutputs:
    return _outputs(outputs.mean, np.zeros_like(outputs.variance), {})


def one_network(name: str, seed: int, scale: frontier.Scale, tag: str, settings: Settings) -> dict[str, Any]:
    """Every score on every foreign set; prices of a bundle without feature scores and of one with those it needs."""
    problem, track = load(name, scale.test), settings.track
    model = _network(problem, seed, scale, tag, track)
    loader = DataLoader(TensorDataset(*(part[: scale.curvature] for part in problem.train)), batch_size=256)
    folder = settings.scratch / f"{name}-{seed}"
    size = min(SIZE, sum(p.numel() for p in model.get_submodule("head").parameters()))
    config, prices = CONFIG.model_copy(update={"subnetwork_size": size}), {}
    for label, changes in {"": {}, WITH_FEATURES: {"score": "fused", "feature_scores": True}}.items():
        own = config.model_copy(update=changes)
        fit_bundle(model, loader, folder, calibration_loader=[problem.held_out], config=own)
        predictor = Predictor.load(folder, threads=1)
        measured = predictor.manifest.graph.price or ()
        prices[f"prices{label}"] = {price.batch: price.forward_passes for price in measured}
    others = []
    for score in NAMED:
        own = config.model_copy(update={"score": score, "feature_scores": True, "measure_price": False})
        fit_bundle(model, loader, folder.with_name(score), calibration_loader=[problem.held_out], config=own)
        others.append(Predictor.load(folder.with_name(score), threads=1))
    scored = Scored(predictor, others, model, HeldOut(*problem.held_out))
    usual = scored.outputs(problem.tests["usual"])
    foreign = foreign_data(problem)
    choices = {kind: scored.choices(kind) for kind in {data.kind for data in foreign.values()}}
    sets = {label: _rates(choices[data.kind], usual, scored.outputs(data.inputs)) for label, data in foreign.items()}
    ordinary, shifted = compared(scored.ordinary), {name: compared(found) for name, found in scored.shifted.items()}
    fused = fit_fused(ordinary, list(shifted.values()))
    assert fused is not None
    return {
        "network": name,
        "seed": seed,
        **prices,
        "weights": {part.score.name: part.weight for part in fused.components},
        "compared": {one.name: one.shift_auroc for one in compare(FitConfig(score="auto"), ordinary, shifted).compared},
        "microseconds": _microseconds(usual, fused),
        "sets": sets,
    }


def _network(problem: Problem, seed: int, scale: frontier.Scale, tag: str, track: Track) -> nn.Module:
    if scale.train is not None:
        inputs, targets = problem.train
        problem = Problem(**{**vars(problem), "train": (inputs[: scale.train], targets[: scale.train])})
    return trained(problem, seed, 0.0, tag, scale.epochs or EPOCHS[problem.name], track)


def _rates(choices: dict[str, Scoring], usual: ClassOutputs, foreign: ClassOutputs) -> dict[str, dict[str, float]]:
    candidates = {**scores_of(usual), **choices}
    found = {name: _told(scoring, usual, foreign) for name, scoring in candidates.items()}
    plain = {name: _told(CLASSIFICATION_SCORES[name], _plain(usual), _plain(foreign)) for name in PLAIN}
    return found | {f"plain {name}": rate for name, rate in plain.items()}


def _told(scoring: Scoring, usual: ClassOutputs, foreign: ClassOutputs) -> dict[str, float]:
    return rates(scoring.scored(usual)[0], scoring.scored(foreign)[0])


def _microseconds(usual: ClassOutputs, fused: FusedScore) -> dict[str, float]:
    """What everything after the graph takes for a batch of 1, with the default score and with the fused one."""
    mean, variance = usual.mean[:1], usual.variance[:1]
    features = {name: scores[:1] for name, scores in usual.features.items()}
    works: Mapping[str, Callable[[], object]] = {
        "default": lambda: uncertainties(mean, variance, None, 1.0),
        "fused": lambda: uncertainties(mean, variance, None, 1.0, fused, features),
    }
    return {name: 1e6 * statistics.median(_seconds(work) for _ in range(ROUNDS)) for name, work in works.items()}


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """For each network, score and foreign set the means over the seeds; all rotations are one set."""
    summary: dict[str, Any] = {}
    for name in dict.fromkeys(run["network"] for run in runs):
        own = [run["sets"] for run in runs if run["network"] == name]
        groups: dict[str, list[str]] = {}
        for label in own[0]:
            groups.setdefault("rotations" if label in ROTATIONS else label, []).append(label)
        summary[name] = {
            score: {
                group: _mean([sets[label][score] for sets in own for label in labels])
                for group, labels in groups.items()
            }
            for score in next(iter(own[0].values()))
        }
    return summary


def _mean(found: list[dict[str, float]]) -> dict[str, float]:
    return {quantity: float(np.mean([one[quantity] for one in found])) for quantity in found[0]}


def run(settings: Settings) -> Values:
    """`--rows mnist` runs one of the networks. Networks are trained where they are not in the cache."""
    names = settings.names(frontier.NETWORKS, frontier.NETWORKS)
    scales, tag = settings.choose((frontier.FULL, "full"), (frontier.QUICK, "quick"))
    seeds = settings.choose(settings.seeds or SEEDS, 1)
    runs = [one_network(name, seed, scales[name], tag, settings) for name in names for seed in range(seeds)]
    return {"summary": summarise(runs), "runs": runs}
