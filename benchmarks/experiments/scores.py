"""Out-of-distribution scores: each alone, the default, and those of the plain network, on the same trained networks.

The posterior is over weights of the head, the cheapest there is, and over added weights, whose distance is a score too.
"""

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.core.settings import Settings, Values
from benchmarks.datasets import mnist
from benchmarks.experiments.corruptions import ROTATIONS
from benchmarks.experiments.frontier import run as frontier
from benchmarks.experiments.frontier.data import NAMES, Problem, normalise
from benchmarks.experiments.frontier.networks import EPOCHS, trained
from benchmarks.experiments.kept import run_once
from demur.offline.config import FitConfig
from demur.offline.data.held_out import TUNING_SHARE, HeldOut
from demur.offline.evaluation.diagnostics import auroc
from demur.offline.fit import fit_bundle
from demur.offline.laplace.scoring import largest_surprise
from demur.service.inference.graph import GraphOutputs
from demur.service.inference.prediction import Predictive
from demur.service.inference.predictor import Predictor
from demur.service.maths.predictive import class_probabilities, entropy, softmax
from demur.service.maths.surprise import LargestSurprise

Array = npt.NDArray[Any]
ACCEPTED = 0.95
SEEDS, BATCH, ROUNDS = 3, 50, 300
SIZE = 750
CONFIG = FitConfig(selection="random", within=("head",))
FULL = dict.fromkeys(NAMES, frontier.Scale()) | {"cifar": frontier.Scale(curvature=4000)}
QUICK = dict.fromkeys(NAMES, frontier.Scale(curvature=400, test=60, train=1500, epochs=1))


def foreign_data(problem: Problem) -> dict[str, Tensor]:
    """By name: other things, noise, for digits also rotations, for photos things in grey."""
    found = dict(problem.foreign)
    pixels = torch.rand(problem.tests["usual"].shape, generator=torch.Generator().manual_seed(0))
    if problem.name == "mnist":
        found |= {name: problem.tests[name] for name in ROTATIONS}
    if problem.name != "cifar":
        return found | {"noise": mnist.normalise(pixels)}
    clothes = mnist.images("fashion-mnist", "t10k")[: len(problem.classes)]
    clothes = F.pad(clothes, (2, 2, 2, 2)).expand(-1, 3, -1, -1)
    return found | {"Fashion-MNIST": normalise(clothes), "noise": normalise(pixels)}


def rates(usual: Array, foreign: Array) -> dict[str, float]:
    """AUROC, and the share of foreign examples below the score that accepts 95 % of the usual ones."""
    accepted = foreign <= np.quantile(usual, ACCEPTED)
    return {"auroc": auroc(usual, foreign), "fpr": float(accepted.mean())}


class Scored:
    """One bundle, and its single scores of any inputs; each set of images is read once."""

    def __init__(self, predictor: Predictor, held_out: HeldOut) -> None:
        self._predictor = predictor
        tuning, *_ = held_out.split(TUNING_SHARE, CONFIG.seed, by_class=True)
        default = largest_surprise(self.singles(self.outputs(tuning.inputs)))
        assert default is not None
        self.default = default

    def outputs(self, inputs: Tensor) -> GraphOutputs:
        """What the graph gives."""
        return GraphOutputs.concatenate([self._predictor.graph.outputs(x.numpy()) for x in torch.split(inputs, BATCH)])

    def singles(self, outputs: GraphOutputs) -> dict[str, Array]:
        """The scores of which the default is made."""
        manifest = self._predictor.manifest
        both = class_probabilities(outputs.mean, outputs.variance, manifest.temperature, manifest.link)
        return {"predictive_entropy": entropy(both[0]), **outputs.features}

    def scores(self, outputs: GraphOutputs) -> dict[str, Array]:
        """Every score by its name, those of the plain network among them."""
        singles = self.singles(outputs)
        return {**singles, "surprise": self.default.scored(singles)[0], **plain_scores(outputs.mean)}


def plain_scores(mean: Array) -> dict[str, Array]:
    """Of the network without a posterior: entropy, energy (Liu et al., NeurIPS 2020) and the negative largest logit
    (Hendrycks et al., ICML 2022)."""
    logits = np.asarray(mean, np.float64)
    return {
        "plain predictive_entropy": entropy(softmax(logits)),
        "plain energy": -np.logaddexp.reduce(logits, axis=1),
        "plain max_logit": -logits.max(axis=1),
    }


def one_network(name: str, seed: int, scale: frontier.Scale, tag: str, settings: Settings) -> dict[str, Any]:
    """Every score on every foreign set, and what a score takes."""
    problem = frontier.problem_of(name, scale)
    model = trained(problem, seed, 0.0, tag, scale.epochs or EPOCHS[name], settings.track)
    loader = DataLoader(TensorDataset(*(part[: scale.curvature] for part in problem.train)), batch_size=256)
    folder = settings.scratch / f"{name}-{seed}"
    size = min(SIZE, sum(p.numel() for p in model.get_submodule("head").parameters()))
    own = CONFIG.model_copy(update={"subnetwork_size": size})
    fit_bundle(model, loader, folder, calibration_loader=[problem.held_out], config=own)
    predictor = Predictor.load(folder, threads=1)
    scored = Scored(predictor, HeldOut(*problem.held_out))
    outputs = scored.outputs(problem.tests["usual"])
    usual = scored.scores(outputs)
    sets = {}
    for label, x in foreign_data(problem).items():
        foreign = scored.scores(scored.outputs(x))
        sets[label] = {score: rates(usual[score], foreign[score]) for score in usual}
    return {"network": name, "microseconds": _microseconds(outputs, scored.default), "sets": sets}


def _kept(name: str, seed: int, scale: frontier.Scale, tag: str, settings: Settings) -> dict[str, Any]:
    """The same from the cache, where an interrupted run of the same scale left it."""
    made = functools.partial(one_network, name, seed, scale, tag, settings)
    return run_once(f"scores-{name}-{seed}-{tag}", asdict(scale), made)


def _microseconds(usual: GraphOutputs, default: LargestSurprise) -> dict[str, float]:
    """What everything after the graph takes for a batch of 1: with one score, and the default."""
    features = {name: scores[:1] for name, scores in usual.features.items()}
    outputs = GraphOutputs(usual.mean[:1], usual.variance[:1], features)
    scorings: Mapping[str, LargestSurprise | None] = {"predictive_entropy": None, "surprise": default}
    works: Mapping[str, Callable[[], object]] = {
        name: partial(Predictive(scoring=scoring).values, outputs) for name, scoring in scorings.items()
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
        kinds = [next(iter(sets.values())).keys() for sets in own]  # not every seed's bundle tells the same mistakes
        groups: dict[str, list[str]] = {}
        for label in own[0]:
            groups.setdefault("rotations" if label in ROTATIONS else label, []).append(label)
        summary[name] = {
            score: {group: _over_seeds(own, labels, score) for group, labels in groups.items()}
            for score in kinds[0]
            if all(score in each for each in kinds)
        }
    return summary


def _over_seeds(seeds: list[dict[str, Any]], labels: list[str], score: str) -> dict[str, float]:
    def of_each(quantity: str) -> Array:
        return np.array([np.mean([sets[label][score][quantity] for label in labels]) for sets in seeds])

    found = of_each("auroc")
    return {"auroc": float(found.mean()), "auroc_std": float(found.std()), "fpr": float(of_each("fpr").mean())}


def run(settings: Settings) -> Values:
    """Train and score what is not in the cache."""
    scales, tag = settings.choose((FULL, "full"), (QUICK, "quick"))
    seeds = settings.choose(settings.seeds or SEEDS, 1)
    runs = [_kept(name, seed, scales[name], tag, settings) for name in NAMES for seed in range(seeds)]
    return {"summary": summarise(runs), "microseconds": [run["microseconds"] for run in runs]}
