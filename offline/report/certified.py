"""The report's table of accuracies that the held-out examples certify."""

from dataclasses import dataclass

from offline.report.text import number, percent
from service.maths.certified import NotCertified, certify
from service.maths.outcomes import ClassOutcomes, Outcomes

ACCURACIES = (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class CertifiedRow:
    """One accuracy: the cells of its row, or why it is not certified."""

    accuracy: str
    cells: tuple[str, ...]
    refused: str | None = None


def certified_rows(outcomes: Outcomes | None) -> list[CertifiedRow]:
    """A row for each of `ACCURACIES`; none where the outcomes are not kept or nothing tunes."""
    if not isinstance(outcomes, ClassOutcomes) or outcomes.tuning is None:
        return []
    rows = []
    for accuracy in ACCURACIES:
        try:
            found = certify(outcomes.calibration, outcomes.tuning, accuracy, CONFIDENCE)
        except NotCertified as error:
            more = "too many errors" if error.missing is None else f"takes about {error.missing:,} more examples"
            rows.append(CertifiedRow(percent(accuracy), (), more))
            continue
        share = found.accepted / len(outcomes.calibration)
        cells = (percent(share), f"{found.errors} of {found.accepted}", number(found.threshold))
        rows.append(CertifiedRow(percent(accuracy), cells))
    return rows
