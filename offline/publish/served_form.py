"""The form in which a posterior is served: exactly, or with a reduced head, where that is less work."""

from dataclasses import dataclass

import torch
from torch import Tensor

from demur.service.bundle import ReducedHead

from ..export.errors import ExportError
from ..export.work import CALL_WORK
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..laplace.calibration import GivesVariance
from ..laplace.head_factor import HeadFactor
from ..laplace.inference import Inference
from ..laplace.reduced_head import ReducedHeadFactor, ReducedHeadPosterior, reduced_head, reduction_bytes
from ..laplace.served_factor import StructuredFactor, least_size, served_factor
from ..laplace.whole_factor import WholeFactor
from ..network.call_order import CallOrder
from ..runtime.peak_memory import FLOAT64
from ..runtime.progress import one_step
from ..selection.price import work_of_added

FLOAT32 = 4
LARGEST_FACTOR = 2**30  # bytes of the factor in the graph, which has less than 2 GiB
REDUCTION_TOLERANCE = 0.01  # of the variances, relative, for a head that is served in fewer directions
LEAST_GAIN = 0.2  # share of a prediction's multiply-adds: less is no reason for an error
ROWS = 32
FREE_MATRICES = 3  # (S, S), that the memory plan has for the export, beside the curvature and its factor


def check_size(jacobian: SubnetworkJacobian, outputs: int) -> None:
    """`ExportError` where the factor of all S weights is too large for the graph."""
    if (size := FLOAT32 * least_size(jacobian, outputs)) > LARGEST_FACTOR:
        raise ExportError(
            f"subnetwork_size: found a posterior over {jacobian.size} weights, whose factor takes {size} bytes, "
            f"expected at most {LARGEST_FACTOR}, since it becomes a part of the graph; give a smaller subnetwork_size"
        )


@dataclass(frozen=True)
class ServedForm:
    """jacobian: of the chosen weights. factor: what becomes a part of the graph, in float64. posterior: gives the same
    variances from the Jacobian. reduced: what the manifest says of a reduced head."""

    jacobian: SubnetworkJacobian
    factor: StructuredFactor | WholeFactor
    posterior: GivesVariance
    reduced: ReducedHead | None = None


def choose_form(job: Job, jacobian: SubnetworkJacobian, inference: Inference, held_out: Tensor) -> ServedForm:
    """The exact form, or a reduced head whose prediction takes at least `LEAST_GAIN` less work, by a count.

    A single output is served exactly: its reduction would take more memory than the job was planned with.

    held_out (n, *input_shape): where the error of the reduced head is measured.
    """
    exact = served_factor(jacobian, inference.factor, job.likelihood.outputs, LARGEST_FACTOR // FLOAT32)
    form = ServedForm(jacobian, exact, inference.factor)
    if not isinstance(exact, HeadFactor) or _gain(job, exact.multiply_adds, 0) < LEAST_GAIN:
        return form
    if reduction_bytes(exact) > FREE_MATRICES * FLOAT64 * jacobian.size**2:
        return form
    added = inference.prior.used + inference.posterior.jitter
    reduced = one_step(job.track, "Reduced head", lambda: reduced_head(exact, added, REDUCTION_TOLERANCE))
    if reduced is None or _gain(job, exact.multiply_adds, reduced.multiply_adds) < LEAST_GAIN:
        return form
    error = _largest_error(jacobian, exact, reduced, held_out)
    metadata = ReducedHead(reduced.rank, reduced.error_bound, error, len(held_out))
    return ServedForm(jacobian, reduced, ReducedHeadPosterior.of(reduced, jacobian), metadata)


def _gain(job: Job, before: int, after: int) -> float:
    """Share of a prediction's multiply-adds that fewer of them in the product with the factor save."""
    order = CallOrder.of(job.network, job.example[:1])
    return (before - after) / (order.multiply_adds + work_of_added(job, order) + CALL_WORK + before)


def _largest_error(
    jacobian: SubnetworkJacobian, exact: HeadFactor, reduced: ReducedHeadFactor, inputs: Tensor
) -> float:
    """The largest relative error of a variance, in float64."""
    largest = 0.0
    for rows in torch.split(inputs, ROWS):
        h = jacobian.head_input(rows).double().cpu()
        error = reduced.variance(None, h) / exact.variance(None, h) - 1
        largest = max(largest, float(error.nan_to_num().abs().max()))
    return largest
