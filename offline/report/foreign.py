"""The report's table of what the bundle rejects of obviously foreign inputs."""

from collections.abc import Iterator
from dataclasses import dataclass

from demur.service.bundle import Manifest, RejectedShare

from ..data.foreigners import is_judged
from .text import percent

LEAST_REJECTED = 0.5


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
        ForeignRow(_title(found), percent(found.share), f"{found.examples:,}", is_judged(found.name))
        for found in manifest.rejection or ()
    ]


def passing(rejection: tuple[RejectedShare, ...]) -> Iterator[RejectedShare]:
    """Those kinds that should be rejected, and are in less than half of the cases."""
    return (found for found in rejection if is_judged(found.name) and found.share < LEAST_REJECTED)


def _title(found: RejectedShare) -> str:
    title = found.name.replace("-", " ")
    return title[0].upper() + title[1:]
