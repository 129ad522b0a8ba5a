"""The form in which a posterior is served: exactly, or with a reduced head, where that is faster."""

from dataclasses import dataclass

import torch
from torch import Tensor

from offline.export.errors import ExportError
from offline.export.graph import export_variance
from offline.export.price import CALL_WORK, graph_price
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.output_rule import AllOutputs
from offline.job import Job
from offline.laplace.calibration import GivesVariance
from offline.laplace.head_factor import HeadFactor
from offline.laplace.inference import Inference
from offline.laplace.reduced_head import ReducedHeadFactor, ReducedHeadPosterior, reduced_head, reduction_bytes
from offline.laplace.served_factor import StructuredFactor, served_factor
from offline.laplace.whole_factor import WholeFactor
from offline.network.call_order import CallOrder
from offline.runtime.arrays import to_numpy
from offline.runtime.peak_memory import FLOAT64
from offline.runtime.progress import one_step
from service.bundle import ReducedHead

FACTOR_LIMIT = 2**28  # bytes of the factor in the graph, of which the export holds several copies
LARGEST_FACTOR = 2**30  # where the graph must hold it; a graph has less than 2 GiB
LEAST_GAIN = 0.2  # share of a prediction's time: less is within the noise of a clock, and no reason for an error
TIMED_GAIN = LEAST_GAIN / 4  # a count that says less is wrong by less than that
ROWS = 32
FREE_MATRICES = 3  # (S, S), that the memory plan has for the export, beside the curvature and its factor


def check_size(jacobian: SubnetworkJacobian, kind: str) -> None:
    """`ExportError` where the graph must hold the factor and cannot; kind: of the posterior."""
    if kind == "cholesky" and not isinstance(jacobian.rule, AllOutputs) and 4 * jacobian.size**2 > LARGEST_FACTOR:
        raise too_large(jacobian)


def too_large(jacobian: SubnetworkJacobian) -> ExportError:
    """For a rule whose variances the graph must give."""
    return ExportError(
        f"variance_of={jacobian.rule.kind!r}: found a posterior over {jacobian.size} weights, expected one of at most "
        f"{LARGEST_FACTOR} bytes, since its product becomes a part of the graph; give a smaller subnetwork_size, or "
        "posterior='low-rank'"
    )


@dataclass(frozen=True)
class ServedForm:
    """`factor`: what becomes a part of the graph, in float64; None: the graph gives the Jacobian. posterior: gives the
    same variances from the Jacobian. reduced: what the manifest says of a reduced head."""

    factor: StructuredFactor | WholeFactor | None
    posterior: GivesVariance
    reduced: ReducedHead | None = None


def choose_form(job: Job, jacobian: SubnetworkJacobian, inference: Inference, held_out: Tensor) -> ServedForm:
    """The exact form, or a reduced head whose prediction takes at least `LEAST_GAIN` less time.

    A single output is served exactly: its reduction would take more memory than the job was planned with.

    held_out (n, *input_shape): where the error of the reduced head is measured. Raises `ExportError`.
    """
    most = FACTOR_LIMIT if isinstance(jacobian.rule, AllOutputs) else LARGEST_FACTOR
    exact = served_factor(jacobian, inference.factor, job.likelihood.outputs, most // 4)
    form = ServedForm(exact, inference.factor)
    if not isinstance(exact, HeadFactor) or _counted_gain(job, exact.multiply_adds, 0) < TIMED_GAIN:
        return form
    if reduction_bytes(exact) > FREE_MATRICES * FLOAT64 * jacobian.size**2:
        return form
    added, tolerance = inference.prior.used + inference.posterior.jitter, job.config.posterior_tolerance
    reduced = one_step(job.track, "Reduced head", lambda: reduced_head(exact, added, tolerance))
    if reduced is None or not _is_faster(job, jacobian, exact, reduced):
        return form
    error = _largest_error(jacobian, exact, reduced, held_out)
    metadata = ReducedHead(reduced.rank, reduced.error_bound, error, len(held_out))
    return ServedForm(reduced, ReducedHeadPosterior.of(reduced, jacobian), metadata)


def _is_faster(job: Job, jacobian: SubnetworkJacobian, exact: HeadFactor, reduced: ReducedHeadFactor) -> bool:
    """By a clock; by a count where the fit may not depend on one (`measure_price`), or where that leaves no doubt."""
    gain = _counted_gain(job, exact.multiply_adds, reduced.multiply_adds)
    if not job.config.measure_price or gain < TIMED_GAIN:
        return gain >= LEAST_GAIN
    outputs, example = job.likelihood.outputs, to_numpy(job.example[:1])

    def price(factor: HeadFactor | ReducedHeadFactor) -> float:
        return graph_price(export_variance(jacobian, job.example, outputs, factor)[0], example).weighed

    before, after = one_step(job.track, "Price of a reduced head", lambda: (price(exact), price(reduced)))
    return after <= (1 - LEAST_GAIN) * before


def _counted_gain(job: Job, before: int, after: int) -> float:
    """Share of a prediction's multiply-adds that fewer of them in the product with the factor save."""
    forward = CallOrder.of(job.network, job.example[:1]).multiply_adds
    return (before - after) / (forward + CALL_WORK + before)


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
