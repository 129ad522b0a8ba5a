"""What the report says of added weights: their posterior, and how the uncertainty budget was shared."""

from dataclasses import dataclass

from offline.report.text import MINUS, NONE, number, percent
from service.bundle import BudgetShare, Manifest


@dataclass(frozen=True)
class ShareRow:
    """One way to share the budget: what went to the added weights; their prior variance, lambda of the others, the
    temperature, and the log-likelihood on held-out data and under shift."""

    share: str
    cells: tuple[str, ...]
    chosen: bool


def added_rows(manifest: Manifest) -> dict[str, str]:
    """Their layers and their prior; none for a bundle without added weights."""
    added = manifest.added_weights
    if added is None:
        return {}
    return {
        "Layers whose inputs they read": _listed(added.layers),
        "Layers of the distance": _listed(added.distance_layers),
        "Random features": f"{added.features:,}",
        "Prior variance of an output": number(added.prior_variance),
    }


def share_rows(manifest: Manifest) -> list[ShareRow]:
    """The smallest share first; none for a bundle without added weights."""
    added = manifest.added_weights
    ordered = sorted(() if added is None else added.shares, key=lambda one: one.share)
    return [ShareRow(percent(one.share), _cells(one), one.chosen) for one in ordered]


def _cells(one: BudgetShare) -> tuple[str, ...]:
    return (
        number(one.prior_variance),
        number(one.precision),
        number(one.temperature),
        *(_nats(value) for value in (one.log_likelihood, one.shift_log_likelihood)),
    )


def _nats(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}".replace("-", MINUS)


def _listed(layers: tuple[str, ...]) -> str:
    return ", ".join(layer or "the network's inputs" for layer in layers)
