"""Each open choice against what the product does, with the same weights and the same budget, over seeds.

The budget is charged alike: every variant takes the smallest lambda whose held-out log-likelihood is at most so many
nats below the best of the product's own sweep (diagonal link, temperature 1).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.kept import run_once
from paper.images.problems import PROBLEMS, Problem
from paper.images.rows import SYNTHETIC
from paper.images.run import FAST, FULL, QUICK
from paper.images.summary import SEEN_KINDS
from paper.images.trained import Networks
from paper.questions import forms
from paper.questions.forms import Form
from paper.questions.material import Material, swag
from paper.questions.posterior import SubnetworkPosterior
from paper.questions.verdicts import verdicts
from probity.offline.data.held_out import HeldOut
from probity.offline.data.likelihood import Classification, class_log_likelihood
from probity.offline.evaluation.auroc import auroc
from probity.offline.laplace.prior import PLAIN
from probity.offline.laplace.temperature import suited
from probity.offline.selection.registry import select
from probity.service.maths.predictive import entropy

Array = npt.NDArray[Any]
SIZE, NOVEL = 750, 32


@dataclass(frozen=True)
class Variant:
    """A form of the predictive, its budget in nats, and whether a temperature is fitted for every lambda."""

    form: Form
    budget: float = 0.05
    tempered: bool = False


PRODUCT = "as the product: diagonal link, all variances, 0.05 nats"
VARIANTS: dict[str, Variant] = {
    PRODUCT: Variant(forms.DIAGONAL),
    "pairwise link": Variant(forms.pairwise),
    "link of outputs less their mean": Variant(forms.centred),
    "link of outputs less the leading one": Variant(forms.against_leading),
    "temperature fitted with the prior": Variant(forms.DIAGONAL, tempered=True),
    "variance of the leading output": Variant(forms.LEADING),
    "mean variance of three leading outputs": Variant(forms.LEADING_THREE),
    "variance of the margin": Variant(forms.MARGIN),
    "0.02 nats": Variant(forms.DIAGONAL, budget=0.02),
    "0.1 nats": Variant(forms.DIAGONAL, budget=0.1),
}
CHOICES: dict[str, Callable[[Material], Tensor]] = {
    "Wasserstein": swag,
    "novelty-sampling": lambda m: (
        select("novelty-sampling", m.living, {"examples": NOVEL, "shifts": list(SYNTHETIC)}).indices
    ),
}


@dataclass(frozen=True)
class Amount:
    """How many held-out examples, test examples and examples for the curvature; seeds by problem."""

    held_out: int
    test: int
    curvature: int
    seeds: dict[str, int]


AMOUNTS = {
    "full": Amount(2000, 1000, 4000, {"mnist": 10, "cifar": 10}),
    "fast": Amount(1000, 480, 2000, {"mnist": 6, "cifar": 3}),
    "quick": Amount(60, 32, 50, {"mnist": 1, "cifar": 1}),
}


def run(settings: Settings) -> Values:
    """All variants on every network, choice of weights and seed; `--rows mnist` measures one problem again."""
    torch.set_num_threads(settings.threads)
    tag = settings.scale("full", "fast", "quick")
    names = settings.names(tuple(PROBLEMS), ("mnist",))
    earlier = settings.earlier("questions", "runs") or []
    runs = [one for one in earlier if one["network"] not in names]
    for name in names:
        scale = settings.scale(FULL, FAST, QUICK)[name]
        seeds, test = settings.seeds or AMOUNTS[tag].seeds[name], AMOUNTS[tag].test
        problem = PROBLEMS[name](scale.train, seeds * test)
        for seed in range(seeds):
            networks = Networks(problem.part(seed * test, test), scale, seed, tag, settings.track)
            for choice in CHOICES:
                amount = {key: value for key, value in asdict(AMOUNTS[tag]).items() if key != "seeds"}
                key = networks.key(f"questions-{choice}")
                depends = amount | {
                    "prior": "search_range",
                    "size": SIZE,
                    "epochs": scale.epochs,
                    "train": scale.train,
                    "test_from": seed * test,
                }
                found = run_once(key, depends | {"variants": list(VARIANTS)}, _one(networks, choice, AMOUNTS[tag]))
                runs.append({"network": name, "seed": seed, "weights": choice, **found})
    return {
        "amounts": asdict(AMOUNTS[tag]),
        "product": PRODUCT,
        "seconds_of_work": sum(one["seconds"] for one in runs),
        "verdicts": verdicts(runs, PRODUCT),
        "runs": runs,
    }


def _one(networks: Networks, choice: str, amount: Amount) -> Callable[[], dict[str, Any]]:
    return lambda: one_choice(networks, choice, amount)


def one_choice(networks: Networks, choice: str, amount: Amount) -> dict[str, Any]:
    """Every variant with the weights of one strategy."""
    problem = networks.problem
    held_out = HeldOut(*(part[: amount.held_out] for part in problem.held_out))
    material = Material(networks.model, *problem.train, held_out, SIZE, networks.seed)
    posterior = SubnetworkPosterior.of(material, CHOICES[choice](material), amount.curvature)
    classes = held_out.targets.numpy()
    grid = np.append(posterior.spectrum.search_range(posterior.share), PLAIN)  # as the product, and none at all
    mean, covariances = posterior.covariances(held_out.inputs, grid)
    reference = max(_score(VARIANTS[PRODUCT], mean, covariance, classes)[0] for covariance in covariances)
    settled = {name: _settle(variant, mean, covariances, classes, reference) for name, variant in VARIANTS.items()}
    precisions = grid[[place for place, _, _ in settled.values()]]
    tests = {str(strength): posterior.covariances(x, precisions) for strength, x in problem.tests.items()}
    foreign = {name: posterior.covariances(x, precisions) for name, x in problem.foreign.items()}
    return {
        "variants": {
            name: {
                "precision": float(precisions[place]),
                "smallest": settled[name][0] == 0,
                "temperature": settled[name][1],
                "spent": settled[name][2],
            }
            | _quality(VARIANTS[name].form, settled[name][1], place, tests, foreign, problem)
            for place, name in enumerate(VARIANTS)
        }
    }


def _settle(
    variant: Variant, mean: Array, covariances: Array, classes: Array, reference: float
) -> tuple[int, float, float]:
    """The place of the smallest lambda within the budget (the best, where none is), its temperature, and the nats of
    held-out log-likelihood that it spends."""
    scores = [_score(variant, mean, covariance, classes) for covariance in covariances]
    allowed = [place for place, (score, _) in enumerate(scores) if score >= reference - variant.budget]
    place = allowed[0] if allowed else int(np.argmax([score for score, _ in scores]))
    return place, scores[place][1], reference - scores[place][0]


def _score(variant: Variant, mean: Array, covariance: Array, classes: Array) -> tuple[float, float]:
    """Held-out log-likelihood, and the temperature."""
    temperature = 1.0
    if variant.tempered:
        likelihood = Classification(mean.shape[1])
        temperature = suited(likelihood, mean, np.diagonal(covariance, axis1=1, axis2=2), classes).temperature
    probabilities = variant.form(mean, covariance, temperature)
    return float(class_log_likelihood(probabilities, classes).mean()), temperature


def _quality(
    form: Form, temperature: float, place: int, tests: dict[str, Any], foreign: dict[str, Any], problem: Problem
) -> dict[str, Any]:
    """Log-likelihood by shift, over kinds that no strategy saw, and AUROC of the predictive entropy."""
    classes, kinds = problem.classes.numpy(), problem.kinds.numpy()
    names = np.array(problem.kind_names)[kinds]
    unseen = ~np.isin(names, SEEN_KINDS)
    found = {strength: form(mean, covariance[place], temperature) for strength, (mean, covariance) in tests.items()}
    outside = {name: form(mean, covariance[place], temperature) for name, (mean, covariance) in foreign.items()}
    likelihoods = {strength: class_log_likelihood(p, classes) for strength, p in found.items()}
    return {
        "log_likelihood": {strength: float(values.mean()) for strength, values in likelihoods.items()},
        "shifted": float(np.mean([values[unseen].mean() for s, values in likelihoods.items() if s != "0"])),
        "auroc": {name: auroc(entropy(found["0"]), entropy(p)) for name, p in outside.items()},
    }
