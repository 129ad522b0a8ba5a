"""How much the quality of added weights depends on what a fit sets for them: one setting varied at a time.

Activations of a network are read once. Each variant is fitted to them, and its prior variance and temperature to the
held-out images within the budget, as a fit does for added weights alone; it is judged as a bundle is, without one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.corruptions import ROTATIONS, UNSEEN
from benchmarks.experiments.frontier import run as frontier
from benchmarks.experiments.frontier.data import Problem
from benchmarks.experiments.frontier.networks import EPOCHS, trained
from benchmarks.experiments.frontier.quality import OBVIOUS
from probity.offline.config import FitConfig
from probity.offline.data.foreigners import obvious_foreigners
from probity.offline.data.held_out import TUNING_SHARE, HeldOut
from probity.offline.data.likelihood import Classification, class_log_likelihood
from probity.offline.evaluation.auroc import auroc
from probity.offline.evaluation.diagnostics import expected_calibration_error
from probity.offline.features.activations import read_activations
from probity.offline.features.added_weights import LINK_FEATURES, SCORE_FEATURES, FeatureSettings, FeatureVariance
from probity.offline.features.layers import FeatureLayers, choose_layers
from probity.offline.laplace.added_scale import Held, choose_scale
from probity.offline.laplace.scoring import HeldOutOutputs, largest_surprise, outputs_of
from probity.offline.laplace.temperature import plain_temperature
from probity.service.maths.rejection import RejectionRule

Array = npt.NDArray[Any]
NETWORKS = frontier.NETWORKS
FACTORS = (0.25, 0.5, 2.0, 4.0)
BATCH, SEED = 100, 0
TUNING, CONFORMAL = "tuning", "conformal"
DEFAULT = "default"


@dataclass(frozen=True)
class Variant:
    """What is varied, and to what; link, score: the settings of the random features; layers: whose inputs they read."""

    setting: str
    value: str
    link: FeatureSettings
    score: FeatureSettings
    layers: FeatureLayers


@dataclass(frozen=True)
class Read:
    """Of sets of images, by name: outputs (n, K) and the activations (n, F_l) by layer, float64."""

    outputs: dict[str, Array]
    activations: dict[str, dict[str, Tensor]]


def variants(layers: FeatureLayers) -> Iterator[Variant]:
    """The default, each number by factors up to four both ways, and other layers."""
    yield Variant(DEFAULT, "", LINK_FEATURES, SCORE_FEATURES, layers)
    for setting in ("length_scale", "precision", "features", "kept"):
        for factor in FACTORS:
            link, score = _varied(LINK_FEATURES, setting, factor), _varied(SCORE_FEATURES, setting, factor)
            yield Variant(setting, f"x {factor:g}", link, score, layers)
    early, last = layers.score[:-1], layers.score[-1]
    choices = {"last": (last,), "last and middle": (*early[-1:], last), "all": layers.score}
    for name, paths in choices.items():
        yield Variant("layers", name, LINK_FEATURES, SCORE_FEATURES, FeatureLayers(paths, paths))


def _varied(settings: FeatureSettings, setting: str, factor: float) -> FeatureSettings:
    """With no more eigenpairs than features."""
    value = getattr(settings, setting)
    found = replace(settings, **{setting: type(value)(factor * value)})
    return replace(found, kept=min(found.kept, found.features))


def read(model: nn.Module, paths: tuple[str, ...], sets: dict[str, Tensor]) -> Read:
    """One forward pass of everything for the activations, one for the outputs."""
    outputs, activations = {}, {}
    with torch.no_grad():
        for name, x in sets.items():
            parts = torch.split(x, BATCH)
            outputs[name] = torch.cat([model(part).double() for part in parts]).numpy()
            found = zip(*(read_activations(model, paths, part) for part in parts), strict=True)
            activations[name] = {path: torch.cat(h).double() for path, h in zip(paths, found, strict=True)}
    return Read(outputs, activations)


def image_sets(problem: Problem, examples: int) -> tuple[dict[str, Tensor], dict[str, Array]]:
    """Everything that is read, and the classes of what has some."""
    tuning, conformal = HeldOut(*problem.held_out).split(TUNING_SHARE, SEED)
    train = problem.train[0][:examples]
    obvious = obvious_foreigners(problem.tests["usual"][:OBVIOUS], SEED)
    sets = {"train": train, TUNING: tuning.inputs, CONFORMAL: conformal.inputs}
    classes = dict.fromkeys(problem.tests, problem.classes.numpy()) | {TUNING: tuning.targets.numpy()}
    return sets | problem.tests | problem.foreign | obvious, classes


def fitted_variance(found: Read, paths: tuple[str, ...], settings: FeatureSettings, *, score: bool) -> dict[str, Array]:
    """v of every set."""
    parts = {name: [own[path] for path in paths] for name, own in found.activations.items()}
    generator = torch.Generator().manual_seed(SEED + score)
    fitted = FeatureVariance.fit(parts["train"], settings, with_lengths=score, generator=generator)
    return {name: fitted.of(own).numpy() for name, own in parts.items() if name != "train"}


def judged(found: Read, classes: dict[str, Array], problem: Problem, variant: Variant, temperature: float) -> Values:
    """One row."""
    link = fitted_variance(found, variant.layers.link, variant.link, score=False)
    distance = fitted_variance(found, variant.layers.score, variant.score, score=True)
    plain = Classification(found.outputs[TUNING].shape[1], temperature, link="probit-shared")
    plain = replace(plain, map_temperature=temperature)
    none = np.zeros((len(link[TUNING]), 1))
    chosen = choose_scale(FitConfig(), plain, Held(found.outputs[TUNING], classes[TUNING], none, link[TUNING]))
    likelihood, scale = chosen.paid.likelihood, chosen.scale
    assert isinstance(likelihood, Classification)
    spread = {name: scale * variance[:, np.newaxis] for name, variance in link.items()}
    tests = {name: likelihood.probabilities(found.outputs[name], spread[name]) for name in problem.tests}
    held = {
        name: HeldOutOutputs(found.outputs[name], spread[name].repeat(plain.outputs, 1), {"distance": own})
        for name, own in distance.items()
    }
    scored = {name: outputs_of(likelihood, outputs) for name, outputs in held.items()}
    surprise = largest_surprise(_known(scored[TUNING]))
    assert surprise is not None
    scores = {name: surprise.scored(_known(outputs))[0] for name, outputs in scored.items()}
    threshold = RejectionRule(np.sort(scores[CONFORMAL]), FitConfig().false_reject_rate).threshold
    foreign = next(iter(problem.foreign))
    obvious = {n: float((scores[n] > threshold).mean()) for n in scores if n not in (*classes, *problem.foreign)}
    obvious.pop(CONFORMAL)
    worth = {name: float(class_log_likelihood(p, classes[name]).mean()) for name, p in tests.items()}
    errors = {name: expected_calibration_error(p, classes[name]) for name, p in tests.items()}
    return {
        "setting": variant.setting,
        "value": variant.value,
        "temperature": likelihood.temperature,
        "prior_variance": scale,
        "usual": worth["usual"],
        "rotation": _mean(worth, ROTATIONS),
        "unseen": _mean(worth, UNSEEN),
        "ece": errors["usual"],
        "ece_unseen": _mean(errors, UNSEEN),
        "auroc_distance": auroc(distance["usual"], distance[foreign]),
        "auroc": auroc(scores["usual"], scores[foreign]),
        "rejected_usual": float((scores["usual"] > threshold).mean()),
        "rejected": obvious,
        "least_rejected": min(obvious.values()),
    }


def _known(outputs: Any) -> Any:
    assert outputs is not None
    return outputs


def _mean(values: dict[str, float], names: Any) -> float | None:
    known = [values[name] for name in names if name in values]
    return float(np.mean(known)) if known else None


def one_network(name: str, settings: Settings) -> Values:
    """All variants on the network of the first seed."""
    scale = settings.choose(frontier.FULL, frontier.QUICK)[name]
    tag, epochs = settings.choose("full", "quick"), scale.epochs or EPOCHS[name]
    problem = frontier.problem_of(name, scale)
    model = trained(problem, SEED, 0.0, tag, epochs, settings.track)
    layers = choose_layers(model, problem.held_out[0][:2])
    assert layers is not None
    sets, classes = image_sets(problem, scale.curvature)
    found = read(model, layers.paths, sets)
    tuning = HeldOut(sets[TUNING], torch.from_numpy(classes[TUNING]))
    temperature = plain_temperature(Classification(int(problem.classes.max()) + 1), model, tuning)
    made = list(variants(layers))
    rows = [judged(found, classes, problem, one, temperature) for one in settings.track(made, name, len(made))]
    return {"network": name, "layers": list(layers.link), "distance_layers": list(layers.score), "variants": rows}


def run(settings: Settings) -> Values:
    """`--rows mnist` runs one of the networks."""
    rows = [one_network(name, settings) for name in settings.names(NETWORKS, NETWORKS)]
    return {"rows": settings.with_earlier("robustness.json", "network", rows, NETWORKS)}
