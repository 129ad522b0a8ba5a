"""The report's table of accuracies that the held-out examples certify."""

from dataclasses import dataclass

from demur.service.maths.certified import Certificate, NotCertified
from demur.service.maths.outcomes import ClassOutcomes, Outcomes

from ..evaluation.certificates import certificates
from .text import number, percent

ACCURACIES = (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)


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
