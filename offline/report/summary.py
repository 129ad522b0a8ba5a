"""The top of the report: headline numbers and the facts for or against a bundle; nothing is escaped here."""

from collections.abc import Iterator
from dataclasses import dataclass

from demur.service.bundle import Calibration, Manifest, ScorePart
from demur.service.format.steps import STEPS
from demur.service.maths.scores import SCORES

from ..evaluation.diagnostics import coverage_band
from .tables import passing
from .text import number, percent


@dataclass(frozen=True)
class Card:
    """A headline number."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Check:
    """One thing to look at before production: whether it is as it should be, and the fact itself."""

    fine: bool
    text: str


def cards(manifest: Manifest, calibration_error: tuple[float, float] | None, coverage: float | None) -> list[Card]:
    """Headline numbers; what was not measured is left out. `calibration_error`: ECE without and with the posterior."""
    beside = STEPS[manifest.task]["_map"]
    rule, metrics = manifest.calibration, manifest.metrics
    examples = f"{rule.examples:,} held-out examples"
    shown = [
        Card("Rejects above", number(rule.threshold), score_note(rule)),
        Card("False-reject rate", percent(rule.false_reject_rate), f"at most, for inputs like the {examples}"),
    ]
    if (full := metrics.get("calibration_log_likelihood")) is not None:
        plain = metrics.get("calibration_log_likelihood_map")
        note = "nats an example" if plain is None else f"nats an example; {beside} {number(plain)}"
        shown.append(Card("Log-likelihood", number(full), note))
    if (accuracy := metrics.get("calibration_accuracy")) is not None:
        plain_accuracy = metrics.get("calibration_accuracy_map")
        network = "" if plain_accuracy is None else f"; plain network {percent(plain_accuracy)}"
        shown.append(Card("Accuracy as served", percent(accuracy), f"on {examples}{network}"))
    if (rmse := metrics.get("calibration_rmse")) is not None and manifest.outputs == 1:  # several have several units
        shown.append(Card("RMSE", number(rmse), f"target's units, on {examples}"))
    if calibration_error is not None:
        shown.append(
            Card("Calibration error (ECE)", f"{calibration_error[1]:.3f}", f"{beside} {calibration_error[0]:.3f}")
        )
    if coverage is not None:
        shown.append(Card("95 % interval", percent(coverage), "of held-out targets inside"))
    return shown


def score_note(calibration: Calibration) -> str:
    """The score with its unit; one made of several with its parts."""
    if calibration.parts is not None:
        return f"largest surprise: {', '.join(map(_part_note, calibration.parts))}"
    score = SCORES[calibration.score]
    return f"{score.title} ({score.unit})" if score.unit == "nats" else score.title


def _part_note(part: ScorePart) -> str:
    title = SCORES[part.name].title
    return f"{title} beyond the {percent(part.least_level)} quantile" if part.least else title


def checks(manifest: Manifest) -> list[Check]:
    """Facts that speak for or against the bundle."""
    found = [_verified, _cost, _covered, _factored, _rejected]
    return [*(check for facts in found for check in facts(manifest)), _warned(manifest)]


def _verified(manifest: Manifest) -> Iterator[Check]:
    verification = manifest.verification
    if verification is None:
        yield Check(False, "The serving code was not compared with the network: the bundle holds no verification.")
        return
    worst = max(verification.errors.values())
    yield Check(
        worst <= verification.tolerance,
        f"The serving code agrees with the network in float64 on {verification.examples} examples: largest relative "
        f"error {number(float(f'{worst:.1e}'))}, tolerance {number(verification.tolerance)}.",
    )


def _cost(manifest: Manifest) -> Iterator[Check]:
    plain = manifest.metrics.get("calibration_log_likelihood_map")
    full = manifest.metrics.get("calibration_log_likelihood")
    if plain is None or full is None:
        return
    added = manifest.added_weights
    budget = manifest.prior.budget if added is None else added.budget
    costs = {STEPS[manifest.task]["_map"]: plain - full}
    if (untempered := manifest.metrics.get("calibration_log_likelihood_plain")) is not None:
        costs |= {STEPS[manifest.task]["_plain"]: untempered - full}
    beside, cost = max(costs.items(), key=lambda pair: pair[1])
    price = f"costs {cost:.2g} nats an example" if cost > 0 else f"gains {-cost:.2g} nats an example"
    limit = "" if budget is None else f"; the budget was {number(budget)}, spent on other held-out data"
    where = f"on {manifest.calibration.examples:,} held-out examples, beside the {beside}"
    yield Check(budget is None or cost <= budget, f"Weight uncertainty {price} {where}{limit}.")


def _covered(manifest: Manifest) -> Iterator[Check]:
    covered, examples = manifest.metrics.get("calibration_coverage_95"), manifest.calibration.examples
    if covered is None or examples < 1:
        return
    low, high = coverage_band(examples, 0.95)
    yield Check(
        low <= covered <= high,
        f"The 95 % intervals hold {percent(covered)} of the targets of {examples:,} held-out examples; "
        f"between {percent(low)} and {percent(high)} is what chance explains.",
    )


def _factored(manifest: Manifest) -> Iterator[Check]:
    jitter = manifest.posterior.jitter
    exact = "The posterior was factored as it is." if jitter == 0 else ""
    yield Check(jitter == 0, exact or f"{number(jitter)} had to be added to the diagonal of the posterior.")


def _rejected(manifest: Manifest) -> Iterator[Check]:
    if manifest.rejection is None:
        return
    names = ", ".join(found.name.replace("-", " ") for found in passing(manifest.rejection))
    if names:
        yield Check(False, f"Less than half is rejected of these obviously foreign inputs: {names}.")
    else:
        yield Check(True, "At least half is rejected of every kind of obviously foreign inputs that is judged.")


def _warned(manifest: Manifest) -> Check:
    count = len(manifest.warnings)
    if count == 0:
        return Check(True, "The fit gave no warnings.")
    return Check(False, f"The fit gave {count} warning{'s' if count > 1 else ''}, listed below.")
