"""What the steps of a fit say of themselves in the manifest."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Section:
    """fields: of the `Manifest`, each from one step; metrics and warnings: more of them, from any."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def joined(cls, sections: Iterable["Section"]) -> "Section":
        """All of them, in their order."""
        fields, metrics, warnings = dict[str, Any](), dict[str, float](), list[str]()
        for section in sections:
            fields |= section.fields
            metrics |= section.metrics
            warnings += section.warnings
        return cls(fields, metrics, tuple(warnings))
