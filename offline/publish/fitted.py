"""Everything about a fit that is published."""

from dataclasses import dataclass

from probity.offline.features.added_weights import AddedWeights
from probity.offline.jacobian.jacobian import SubnetworkJacobian
from probity.offline.laplace.calibration import Calibrated
from probity.offline.laplace.ggn import Curvature
from probity.offline.laplace.inference import Inference
from probity.offline.publish.served_form import ServedForm
from probity.offline.selection.subnetwork import Subnetwork


@dataclass(frozen=True)
class Fitted:
    """What the steps of a fit found; `memory`: the lines of its plan; `doubts`: warnings about the calibration data."""

    subnetwork: Subnetwork
    jacobian: SubnetworkJacobian
    curvature: Curvature
    inference: Inference
    form: ServedForm
    calibrated: Calibrated
    memory: tuple[str, ...]
    tuning_examples: int
    doubts: tuple[str, ...] = ()

    @property
    def added(self) -> AddedWeights | None:
        """The added weights, if there are any."""
        return None if self.inference.added is None else self.inference.added.weights
