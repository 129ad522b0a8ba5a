"""The chosen weights, and how they came about."""

from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from demur.service.bundle import ParameterSlice, Selection

from ..job import Job
from ..section import Section


@dataclass(frozen=True)
class Subnetwork:
    """The chosen weights: `indices` (S,) int64 ascending, and what chooses them again.

    dead_weights: candidates without curvature that were left out, None: not counted. explanation: one sentence, where
    the options alone do not tell. strategy, options: filled in by `demur.offline.selection.registry.select`. within:
    the modules that the choice is restricted to, None: all.
    """

    indices: Tensor
    dead_weights: int | None = None
    explanation: str | None = None
    strategy: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    within: tuple[str, ...] | None = None

    def section(self, job: Job) -> Section:
        """In the manifest."""
        chosen = {parameter.name: len(positions) for parameter, positions in job.layout.locate(self.indices)}
        selection = Selection(
            strategy=self.strategy,
            options=self.options,
            seed=job.config.seed,
            dead_weights=self.dead_weights,
            parameters=tuple(
                ParameterSlice(p.name, p.shape, p.offset, chosen.get(p.name, 0)) for p in job.layout.parameters
            ),
            explanation=self.explanation,
            within=self.within,
        )
        sizes = {"parameter_count": job.layout.total, "subnetwork_size": len(self.indices)}
        return Section({"selection": selection, **sizes})

    def to_json(self) -> dict[str, Any]:
        """Everything but the indices, as plain values."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "indices"}
        return values | {"within": None if self.within is None else list(self.within)}

    @classmethod
    def from_json(cls, indices: Tensor, values: dict[str, Any]) -> "Subnetwork":
        """What `to_json` made plain, with its indices."""
        within = values["within"]
        return cls(indices, **values | {"within": None if within is None else tuple(within)})
