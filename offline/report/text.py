"""What the report says in words and numbers: a manifest in, plain rows out. Nothing here is escaped: the template does.

Numbers are formatted here and nowhere else, so that the page shows them alike.
"""

import json
import math
from dataclasses import dataclass
from itertools import groupby

from demur.service.bundle import Manifest, ParameterSlice

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


@dataclass(frozen=True)
class ParameterRow:
    """One parameter: chosen weights, their share of the subnetwork and of the parameter in %, and the bar's length."""

    name: str
    shape: str
    chosen: str
    of_subnetwork: str
    of_parameter: str
    bar: float


def number(value: float) -> str:
    """Four significant digits, as a person writes them: 12,000 and 1.2 x 10^-5 with a raised exponent."""
    size = abs(value)
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
    """A share in [0, 1] as a percentage with three significant digits."""
    return f"{number(float(f'{100 * share:.3g}'))}\N{NO-BREAK SPACE}%"


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
            rows["Noise estimated on"] = f"{examples:,.0f} held-out examples, which did not set the threshold"
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
