"""The report's table of what the uncertainty buys and costs on held-out data."""

from dataclasses import dataclass

from demur.service.bundle import Manifest
from demur.service.format.steps import STEPS

from ..data.foreigners import is_judged
from .text import MINUS, NONE, percent


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
