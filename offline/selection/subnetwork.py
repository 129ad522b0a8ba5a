"""The chosen weights, and how they came about."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from torch import Tensor

from offline.jacobian.output_rule import Kind


@dataclass(frozen=True)
class CandidateScore:
    """How one candidate of `auto` did. `size`: its weights, of which `judged` were compared.

    forward_passes: what a prediction costs by a count.
    prior_precision: lambda within the budget. cost: nats of held-out log-likelihood that its uncertainty costs.
    log_likelihood: mean on held-out data.
    shift_log_likelihood: mean over the shifts that keep the label, of the true labels. shift_auroc: mean over all
    shifts of the area under the ROC curve of the score, held-out against shifted examples.
    """

    name: str
    size: int
    judged: int
    forward_passes: float
    prior_precision: float
    cost: float
    log_likelihood: float
    shift_log_likelihood: float
    shift_auroc: float
    chosen: bool = False


@dataclass(frozen=True)
class Subnetwork:
    """The chosen weights: `indices` (S,) int64 ascending, and what chooses them again.

    dead_weights: candidates without curvature that were left out, None: not counted. explanation: one sentence, where
    the options alone do not tell. strategy, options: filled in by `offline.selection.registry.select`. within: the
    modules that the choice is restricted to, None: all. candidates: what `auto` compared, exactly one of
    them chosen. variance_of, computed: the kind of `offline.jacobian.output_rule` and the number of
    variances, where `auto` chose those too.
    """

    indices: Tensor
    dead_weights: int | None = None
    explanation: str | None = None
    strategy: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    within: tuple[str, ...] | None = None
    candidates: tuple[CandidateScore, ...] = ()
    variance_of: Kind | None = None
    computed: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Everything but the indices, as plain values."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "indices"}
        compared = [asdict(score) for score in self.candidates] or None
        return values | {"candidates": compared, "within": None if self.within is None else list(self.within)}

    @classmethod
    def from_json(cls, indices: Tensor, values: dict[str, Any]) -> "Subnetwork":
        """What `to_json` made plain, with its indices."""
        within, compared = values["within"], values["candidates"]
        restored = {
            "within": None if within is None else tuple(within),
            "candidates": tuple(CandidateScore(**score) for score in compared or ()),
        }
        return cls(indices, **values | restored)
