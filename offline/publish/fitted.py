"""Everything about a fit that is published."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..data.description import Description
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..laplace.calibrated import Calibrated
from ..laplace.ggn import Curvature
from ..laplace.inference import Inference
from ..laplace.served_factor import StructuredFactor, WholeFactor
from ..section import Section
from ..selection.subnetwork import Subnetwork


@dataclass(frozen=True)
class Fitted:
    """What the steps of a fit found; jacobian: of the chosen weights; factor: the posterior's, for the graph."""

    description: Description
    subnetwork: Subnetwork
    curvature: Curvature
    inference: Inference
    jacobian: SubnetworkJacobian
    factor: StructuredFactor | WholeFactor
    calibrated: Calibrated

    def sections(self, job: Job) -> Iterator[Section]:
        """What each step says of itself in the manifest; only the graph is missing."""
        yield self.description.section(job.config)
        yield self.subnetwork.section(job)
        yield self.curvature.section(job)
        yield self.inference.section()
        yield self.calibrated.section(job.likelihood, self.description.names)
