"""The first stage of a bundle's cascade, open: its graph, its band, and the rule of the cascade as a whole."""

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from service.bundle import Bundle, CalibrationTensors, Cascade
from service.inference.session import Network, open_first_stage, run
from service.maths.cascade import Band
from service.maths.rejection import RejectionRule

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FirstStage:
    """`rule` and `calibration` are of the whole cascade; `row_numbers` as in the manifest."""

    network: Network
    band: Band
    rule: RejectionRule
    calibration: CalibrationTensors
    row_numbers: int

    @classmethod
    def of(cls, bundle: Bundle, threads: int | None) -> "FirstStage | None":
        """None where the bundle has no cascade; raises `BundleError` for a graph that is not what the manifest says."""
        described, files = bundle.manifest.cascade, bundle.cascade
        if described is None or files is None:
            return None
        return cls(
            open_first_stage(bundle, threads),
            band_of(described),
            RejectionRule(files.calibration.scores, described.calibration.false_reject_rate),
            files.calibration,
            described.row_numbers,
        )

    def mean_and_variance(self, inputs: Array) -> tuple[Array, Array]:
        """inputs (B, *input_shape) -> (B, K) both, float32; raises `NetworkError`."""
        mean, variance = run(self.network, ["mean", "variance"], inputs)
        return mean, variance


def band_of(cascade: Cascade) -> Band:
    """The band that a manifest describes."""
    return Band(cascade.low, math.inf if cascade.high is None else cascade.high, cascade.threshold)
