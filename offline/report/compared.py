"""The report's table of the scores that a fit compared, with score="auto" or "fused"."""

from dataclasses import dataclass

from demur.service.bundle import Manifest
from demur.service.maths.scores import SCORES

from .text import percent


@dataclass(frozen=True)
class ScoreRow:
    """One score; weight: its part of a fused one that is served, empty where none is."""

    title: str
    auroc: str
    weight: str
    chosen: bool


def score_rows(manifest: Manifest) -> list[ScoreRow]:
    """The best score first; none where the fit compared nothing."""
    calibration = manifest.calibration
    parts = (calibration.parts if calibration.score == "fused" else None) or ()
    weights: dict[str, str] = {part.name: percent(part.weight) for part in parts}
    ordered = sorted(calibration.compared or (), key=lambda one: -one.shift_auroc)
    return [
        ScoreRow(_title(one.name), f"{one.shift_auroc:.4f}", weights.get(one.name, ""), one.chosen) for one in ordered
    ]


def _title(name: str) -> str:
    title = SCORES[name].title if name in SCORES else "fused score"
    return title[0].upper() + title[1:]
