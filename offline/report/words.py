"""What the report says in words and numbers: a manifest in, plain rows out. Nothing here is escaped: the template does.

Numbers are formatted here and nowhere else, so that the page shows them alike.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from demur.service.bundle import AddedWeights, Calibration, Manifest, ParameterSlice, RejectedShare, ScorePart
from demur.service.format.steps import STEPS
from demur.service.maths.certified import Certificate, NotCertified
from demur.service.maths.outcomes import ClassOutcomes, Outcomes
from demur.service.maths.prediction_sets import conformal_quantile, conformal_rank
from demur.service.maths.scores import SCORES

from ..data.foreigners import is_judged
from ..evaluation.certificates import certificates
from ..evaluation.diagnostics import coverage_band

MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"
METHODS = {
    "fixed": "given by the user",
    "gridsearch": "best log-likelihood on held-out data",
    "marglik": "best log evidence (marginal likelihood) on the training data",
    "budget": "the smallest, so the most uncertainty, that keeps within the uncertainty budget on held-out data",
}
LEAST_PLAIN, MOST_PLAIN = 1e-4, 1e9  # what is smaller or larger is written with an exponent
RAISED = str.maketrans(
    "-0123456789",
    "\N{SUPERSCRIPT MINUS}\N{SUPERSCRIPT ZERO}\N{SUPERSCRIPT ONE}\N{SUPERSCRIPT TWO}\N{SUPERSCRIPT THREE}"
    "\N{SUPERSCRIPT FOUR}\N{SUPERSCRIPT FIVE}\N{SUPERSCRIPT SIX}\N{SUPERSCRIPT SEVEN}\N{SUPERSCRIPT EIGHT}"
    "\N{SUPERSCRIPT NINE}",
)
LONGEST_EMPTY_RUN = 3  # more parameters in a row without a chosen weight become one line
LEAST_REJECTED = 0.5
ACCURACIES = (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
LEVEL, SHOWN = 0.95, 10


def number(value: float) -> str:
    """Four significant digits, as a person writes them: 12,000 and 1.2 x 10^-5 with a raised exponent."""
    size = abs(float(f"{value:.4g}"))
    if not math.isfinite(value) or size == 0 or LEAST_PLAIN <= size < 1e4:
        return f"{value:.4g}".replace("-", MINUS)
    if 1e4 <= size < MOST_PLAIN:
        return f"{float(f'{value:.4g}'):,.0f}".replace("-", MINUS)
    digits, _, exponent = f"{value:.3e}".partition("e")
    factor = digits.rstrip("0").rstrip(".").replace("-", MINUS)
    return (
        f"{factor}\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}10{str(int(exponent)).translate(RAISED)}"
    )


def percent(share: float) -> str:
    """A share in [0, 1] as a percentage with three significant digits, with more where all of them would be 100 %."""
    rounded = float(f"{100 * share:.3g}")
    shown = rounded if rounded < 100 or share >= 1 else math.floor(1e4 * share + 1e-6) / 100
    return f"{number(shown)}\N{NO-BREAK SPACE}%"


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
        shown.append(Card("Gaussian 95 % interval", percent(coverage), "of held-out targets within 1.96 std"))
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
        f"The Gaussian 95 % intervals, of 1.96 std, hold {percent(covered)} of the targets of {examples:,} held-out "
        f"examples; between {percent(low)} and {percent(high)} is what chance explains.",
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


@dataclass(frozen=True)
class ParameterRow:
    """One parameter: chosen weights, their share of the subnetwork and of the parameter in %, and the bar's length."""

    name: str
    shape: str
    chosen: str
    of_subnetwork: str
    of_parameter: str
    bar: float


def selection_rows(manifest: Manifest) -> dict[str, str]:
    """How the weights were chosen."""
    selection = manifest.selection
    rows = {"Strategy": selection.strategy}
    if selection.options:
        rows["Options"] = json.dumps(selection.options, sort_keys=True, ensure_ascii=False, default=str)
    rows["Open to choice"] = "every weight" + ("" if selection.within is None else f" in {', '.join(selection.within)}")
    if selection.dead_weights is not None:
        rows["Dead weights left out"] = f"{selection.dead_weights:,} without curvature: no training example feels them"
    rows["Seed"] = str(selection.seed)
    return rows


def parameter_rows(manifest: Manifest) -> list[ParameterRow]:
    """The parameters in network order; a long run of parameters without a chosen weight is one row."""
    size, parameters = manifest.subnetwork_size, manifest.selection.parameters
    largest = max((p.chosen for p in parameters), default=0) or 1
    rows = []
    for occupied, group in groupby(parameters, lambda p: p.chosen > 0):
        run = list(group)
        if not occupied and len(run) > LONGEST_EMPTY_RUN:
            rows.append(ParameterRow(f"{run[0].name} … {run[-1].name}", f"{len(run)} parameters", "0", NONE, NONE, 0.0))
        else:
            rows.extend(_parameter_row(p, size, largest) for p in run)
    return rows


def _parameter_row(parameter: ParameterSlice, size: int, largest: int) -> ParameterRow:
    shape = " x ".join(map(str, parameter.shape)) or "scalar"
    chosen = parameter.chosen
    shares = (percent(chosen / size), percent(chosen / max(1, math.prod(parameter.shape)))) if chosen else (NONE, NONE)
    return ParameterRow(parameter.name, shape, f"{chosen:,}", *shares, round(100 * chosen / largest, 1))


def prior_rows(manifest: Manifest) -> dict[str, str]:
    """The prior precision and where it came from."""
    prior = manifest.prior
    rows = {
        "Prior precision λ": number(prior.precision),
        "Chosen as": METHODS[prior.method],
        "In the posterior, λ_S": f"{number(prior.used)} (λ S / D)",
    }
    if prior.budget is not None:
        rows["Uncertainty budget"] = f"{number(prior.budget)} nats an example"
        if prior.tried is not None and prior.precision <= min(prior.tried.precisions):
            rows["Search"] = (
                "ended at its smallest value within the budget: a larger subnetwork leaves more uncertainty"
            )
    return rows


def posterior_rows(manifest: Manifest) -> dict[str, str]:
    """The posterior, the noise and the temperature."""
    posterior = manifest.posterior
    rows = {"Kind": f"{posterior.kind}, over {posterior.size:,} weights"}
    rows["Jitter on the diagonal"] = number(posterior.jitter) if posterior.jitter else "none"
    if manifest.sigma_noise is not None:
        each = zip(manifest.labels, manifest.noises or (), strict=True)
        one = number(manifest.sigma_noise) if isinstance(manifest.sigma_noise, float) else None
        noise = one or ", ".join(f"{name} {number(sigma)}" for name, sigma in each)
        by_input = manifest.input_noise
        scaled = "" if by_input is None else f", times {number(by_input.least)} to {number(by_input.most)} by the input"
        rows["Observation noise"] = f"{noise} (standard deviation, target's units){scaled}"
        if (examples := manifest.metrics.get("noise_examples")) is not None:
            rows["Noise estimated on"] = f"{examples:,.0f} held-out examples, which do not set the intervals"
    else:
        rows["Temperature"] = number(manifest.temperature)
        rows["Temperature of the plain network"] = number(manifest.map_temperature)
    return rows


def verification_rows(manifest: Manifest) -> dict[str, str]:
    """Relative errors of the serving code, empty where nothing was verified."""
    verification = manifest.verification
    if verification is None:
        return {}
    return {
        f"{name.capitalize()}, relative error": number(float(f"{error:.1e}"))
        for name, error in verification.errors.items()
    }


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
        ForeignRow(
            found.name.replace("-", " ").capitalize(),
            percent(found.share),
            f"{found.examples:,}",
            is_judged(found.name),
        )
        for found in manifest.rejection or ()
    ]


def passing(rejection: tuple[RejectedShare, ...]) -> Iterator[RejectedShare]:
    """Those kinds that should be rejected, and are in less than half of the cases."""
    return (found for found in rejection if is_judged(found.name) and found.share < LEAST_REJECTED)


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
            _mean_rejected(manifest) if step == "" else NONE,
        )
        for step, title in steps.items()
    ]


def _mean_rejected(manifest: Manifest) -> str:
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
    by_class = ["95 %" if conformal_rank(n, LEVEL) <= n else "in every set: too few examples" for n in counts.tolist()]
    return [(manifest.labels[k], f"{holds[k]:,} of {counts[k]:,}", by_class[k]) for k in worst]
