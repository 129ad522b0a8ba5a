"""Everything about a fit that is published."""

from collections.abc import Iterator
from dataclasses import dataclass

from probity.offline.data.description import Description
from probity.offline.job import Job
from probity.offline.laplace.calibrated import Calibrated
from probity.offline.laplace.ggn import Curvature
from probity.offline.laplace.inference import Inference
from probity.offline.publish.served_form import ServedForm
from probity.offline.section import Section
from probity.offline.selection.subnetwork import Subnetwork


@dataclass(frozen=True)
class Fitted:
    """What the steps of a fit found; resources: lines about what they took."""

    description: Description
    subnetwork: Subnetwork
    curvature: Curvature
    inference: Inference
    form: ServedForm
    calibrated: Calibrated
    resources: tuple[str, ...]

    def sections(self, job: Job) -> Iterator[Section]:
        """What each step says of itself in the manifest; only the graph is missing."""
        yield self.description.section(job.config)
        yield self.subnetwork.section(job)
        yield self.curvature.section(job)
        yield self.inference.section(job.config)
        yield self.calibrated.section(job.likelihood, self.description.names)
