"""`DEMUR_SHADOW`: a version that predicts beside the one that answers, and for which share of the requests."""

import math
from dataclasses import dataclass

from ..format.text import is_segment

EXPECTED = "NAME/VERSION@SHARE, such as digits/10@0.1, with a share above 0 and at most 1"


@dataclass(frozen=True)
class ShadowChoice:
    """The version of the model of this name, for this share of the requests that another version answers."""

    name: str
    version: str
    share: float

    @classmethod
    def parse(cls, text: str) -> "ShadowChoice":
        """Raises `ValueError`."""
        model, _, share = text.rpartition("@")
        name, _, version = model.rpartition("/")
        try:
            number = float(share)
        except ValueError:
            number = math.nan
        if not (is_segment(name) and is_segment(version) and 0 < number <= 1):
            raise ValueError(f"found {text!r:.200}, expected {EXPECTED}")
        return cls(name, version, number)
