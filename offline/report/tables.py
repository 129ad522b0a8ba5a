"""The report's tables: foreigners, what the uncertainty buys, added weights, certified accuracies, sets."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from demur.service.bundle import AddedWeights, Manifest, RejectedShare
from demur.service.format.steps import STEPS
from demur.service.maths.certified import Certificate, NotCertified
from demur.service.maths.outcomes import ClassOutcomes, Outcomes
from demur.service.maths.prediction_sets import conformal_quantile, conformal_rank

from ..data.foreigners import is_judged
from ..evaluation.certificates import certificates
from .text import MINUS, NONE, number, percent

LEAST_REJECTED = 0.5
ACCURACIES = (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
LEVEL, SHOWN = 0.95, 10


@dataclass(frozen=True)
class ForeignRow:
    """One kind of foreign inputs; judged: whether they should be rejected whatever the data are."""

    title: str
    share: str
    examples: str
    judged: bool


def foreign_rows(manifest: Manifest) -> list[ForeignRow]:
    """A row for each kind, as they were measured; none where nothing was measured."""
    return [
        ForeignRow(_title(found), percent(found.share), f"{found.examples:,}", is_judged(found.name))
        for found in manifest.rejection or ()
    ]


def passing(rejection: tuple[RejectedShare, ...]) -> Iterator[RejectedShare]:
    """Those kinds that should be rejected, and are in less than half of the cases."""
    return (found for found in rejection if is_judged(found.name) and found.share < LEAST_REJECTED)


def _title(found: RejectedShare) -> str:
    title = found.name.replace("-", " ")
    return title[0].upper() + title[1:]


@dataclass(frozen=True)
class Bought:
    """One step from the network to what is served: mean log-likelihood in nats, expected calibration error, and, of the
    last one alone, the share of obviously foreign inputs that is rejected."""

    title: str
    log_likelihood: str
    calibration_error: str
    rejected: str


def bought_rows(manifest: Manifest) -> list[Bought]:
    """The network first; nothing where the fit did not measure it."""
    metrics, steps = manifest.metrics, STEPS[manifest.task]
    if any(f"calibration_log_likelihood{step}" not in metrics for step in steps):
        return []
    return [
        Bought(
            title,
            _shown(metrics[f"calibration_log_likelihood{step}"]),
            _shown(metrics.get(f"calibration_error{step}")),
            _rejected(manifest) if step == "" else NONE,
        )
        for step, title in steps.items()
    ]


def _rejected(manifest: Manifest) -> str:
    """The mean over the kinds that are judged."""
    shares = [found.share for found in manifest.rejection or () if is_judged(found.name)]
    return percent(sum(shares) / len(shares)) if shares else NONE


def _shown(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}".replace("-", MINUS)


def added_rows(manifest: Manifest) -> dict[str, str]:
    """Their layers, their variance, and what the uncertainty costs; none for a bundle without added weights."""
    added = manifest.added_weights
    if added is None:
        return {}
    return {
        "Layers whose inputs they read": _listed(added.layers),
        "Layers of the distance": _listed(added.distance_layers),
        "Random features": f"{added.features:,}",
        **_usual(added),
        "Cost on held-out data": f"{number(added.cost)} nats, standard error {number(added.cost_error)}",
        "Uncertainty budget": f"{number(added.budget)} nats",
    }


def _usual(added: AddedWeights) -> dict[str, str]:
    """How large variances are: at twice the threshold the gate leaves half of u, which is the threshold."""
    if added.gate is None:
        return {"Prior variance of an output": number(added.prior_variance)}
    return {"Variance of an input twice as unusual as nine in ten": number(added.gate.threshold)}


def _listed(layers: tuple[str, ...]) -> str:
    names = {"": "the network's inputs", ".": "their texture"}
    return ", ".join(names.get(layer, layer) for layer in layers)


@dataclass(frozen=True)
class CertifiedRow:
    """One accuracy: the cells of its row, or why it is not certified."""

    accuracy: str
    cells: tuple[str, ...]
    refused: str | None = None


def certified_rows(outcomes: Outcomes | None) -> list[CertifiedRow]:
    """A row for each of `ACCURACIES`; none for a regression, without outcomes, or where nothing tunes."""
    if not isinstance(outcomes, ClassOutcomes):
        return []
    examples, found = len(outcomes.calibration), certificates(outcomes, ACCURACIES)
    return [_row(accuracy, one, examples) for accuracy, one in zip(ACCURACIES, found, strict=False)]


def _row(accuracy: float, found: Certificate | NotCertified, examples: int) -> CertifiedRow:
    if isinstance(found, NotCertified):
        more = "too many errors" if found.missing is None else f"takes about {found.missing:,} more examples"
        return CertifiedRow(percent(accuracy), (), more)
    accepted = percent(found.accepted / examples)
    return CertifiedRow(percent(accuracy), (accepted, f"{found.errors} of {found.accepted}", number(found.threshold)))


def set_rows(manifest: Manifest, outcomes: Outcomes | None) -> list[tuple[str, str, str]]:
    """Of at most `SHOWN` classes: name, how many of its held-out examples the sets hold, and what sets by class hold.

    None where the true classes are not known, as of a regression.
    """
    if not isinstance(outcomes, ClassOutcomes) or outcomes.classes is None:
        return []
    scores, classes = outcomes.set_scores, outcomes.classes
    held = outcomes.calibration.correct | (scores <= conformal_quantile(np.sort(scores), LEVEL))
    counts = np.bincount(classes, minlength=manifest.outputs)
    holds = np.bincount(classes[held], minlength=manifest.outputs)
    shares = np.where(counts > 0, holds / np.maximum(counts, 1), 2.0)  # those without examples last
    worst = np.argsort(shares, kind="stable")[:SHOWN]
    return [(manifest.labels[k], f"{holds[k]:,} of {counts[k]:,}", _by_class(int(counts[k]))) for k in worst]


def _by_class(count: int) -> str:
    return "95 %" if conformal_rank(count, LEVEL) <= count else "in every set: too few examples"
