"""One small batch through the whole job before hours of work: Jacobian, export, onnxruntime, check against torch.

Which weights will be chosen is not known yet, so a few of every parameter that may be chosen stand for them: each
layer's rule and each backward pass is exported once. A few mixtures of the outputs stand for all, however many.
"""

import numpy as np
import torch
from torch import Tensor

from demur.service.inference.onnx_runtime import onnxruntime

from .export.errors import ExportError
from .export.graph import export_jacobian
from .export.verify import LOOSEST, VerificationError, relative_error
from .jacobian.jacobian import SubnetworkJacobian
from .jacobian.plain import plain_jacobian
from .jacobian.plan import few_mixtures
from .jacobian.routes import Chosen
from .job import Job
from .network.model_copy import highest_precision
from .network.unsupported import SUPPORTED, differentiated_for_the_first_time
from .runtime.arrays import Array, to_numpy
from .runtime.progress import one_step
from .selection.registry import select, strategy_of
from .selection.select import selection_context, spread

EXAMPLES = 2
OF_EACH_PARAMETER = 2  # weights
Answers = tuple[Array, Array]
"""Mean (B, K), and the derivatives of a few mixtures of the outputs (B, M, S)."""


def check_derivatives(job: Job, reach: Tensor) -> None:
    """Differentiate one example in as many weights as will be chosen, spread over those that may be, `reach` (C,).

    Raises `UnsupportedModelError` with the remedy for a model that cannot be differentiated.
    """
    with differentiated_for_the_first_time():
        job.jacobian(spread(reach, job.size))(job.example[:1])


def check_whole_way(job: Job, reach: Tensor, inputs: Tensor) -> None:
    """Run the first of `inputs` (n, *input_shape) through Jacobian, export, onnxruntime and verification.

    reach (C,) ascending: the weights that may be chosen.

    Raises `ValueError` for names in the configuration that the network does not have, `ExportError` with the remedy for
    a model that cannot be exported, `VerificationError` where onnxruntime's answers differ from torch's.
    """
    with torch.random.fork_rng(devices=[job.device] if job.device.type == "cuda" else []):
        indices = weights_to_try(job, reach)
        one_step(job.track, "Trial export", lambda: _try_weights(job, indices, inputs[:EXAMPLES]))


def weights_to_try(job: Job, reach: Tensor) -> Tensor:
    """The first and the last weight that may be chosen of every parameter, (n,) ascending."""
    config = job.config
    if strategy_of(config.selection).whole:
        options = {name: value for name, value in config.selection_options.items() if name != "live_only"}
        positions = select(config.selection, selection_context(job, job.size, config.within), options).indices
    else:
        positions = reach
    ends = [
        parameter.offset + inside[torch.linspace(0, len(inside) - 1, min(OF_EACH_PARAMETER, len(inside))).long()]
        for parameter, inside in job.layout.locate(positions.cpu())
    ]
    return torch.cat(ends)


def _try_weights(job: Job, indices: Tensor, inputs: Tensor) -> None:
    jacobian = job.jacobian(indices)
    try:
        graph = _exported(job, jacobian)
    except ExportError as error:
        if error.stage == "forward":  # whatever is chosen, it is part of the graph
            raise
        raise ExportError(f"{error}. {_what_can_be_chosen(job)}") from error
    exported = _answers(graph, inputs)
    chosen = tuple(Chosen(p, positions) for p, positions in job.layout.locate(indices.to(job.device)))
    single = _plain_answers(job, chosen, inputs)
    if _differs(exported, single) and _differs(exported, _precise_answers(job, chosen, inputs)):
        raise VerificationError(
            "verification: on a trial batch the exported network's answers differ from torch's by more than "
            f"{LOOSEST:.0e} (relative); nothing was published. A model that mixes the examples of a batch, or draws "
            f"random numbers, cannot be served (see {SUPPORTED})"
        )


def _exported(job: Job, jacobian: SubnetworkJacobian) -> bytes:
    with torch.no_grad():
        mean = job.network(job.example)
    return export_jacobian(jacobian, job.example, few_mixtures(mean))[0]


def _what_can_be_chosen(job: Job) -> str:
    """Whether the last layer alone could be exported: where not, the cause is no backward pass."""
    context = selection_context(job, job.layout.total, None)
    try:
        last = select("last-layer", context, {}).indices
        _exported(job, job.jacobian(last[:OF_EACH_PARAMETER]))
    except (ExportError, ValueError):
        return "The network cannot be exported for any choice of weights"
    return (
        "The network itself can be exported, and so can weights of its last layer: selection='last-layer', or `within` "
        "the modules behind the one at fault"
    )


def _answers(graph: bytes, inputs: Tensor) -> Answers:
    """onnxruntime's, and once more with every example alone: the larger batch must not matter."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    joint = _run(session, inputs)
    alone = [_run(session, one) for one in torch.split(inputs, 1)]
    single = np.concatenate([mean for mean, _ in alone]), np.concatenate([j for _, j in alone])
    if _differs(joint, single):
        raise VerificationError(
            "verification: the exported network answers otherwise when examples come one at a time; nothing was "
            "published. A model that mixes the examples of a batch, or draws random numbers, cannot be served (see "
            f"{SUPPORTED})"
        )
    return joint


def _run(session: onnxruntime.InferenceSession, inputs: Tensor) -> Answers:
    mean, jacobian = session.run(["mean", "jacobian"], {"inputs": to_numpy(inputs)})
    return mean, jacobian


def _plain_answers(job: Job, chosen: tuple[Chosen, ...], inputs: Tensor) -> Answers:
    """Torch's own differentiation, in the network's precision."""
    with torch.no_grad():
        mean = job.network(inputs)
    return to_numpy(mean), to_numpy(plain_jacobian(job.network, chosen, inputs, few_mixtures))


def _precise_answers(job: Job, chosen: tuple[Chosen, ...], inputs: Tensor) -> Answers:
    """The same in float64, where the network runs in it."""
    with highest_precision(job.network, inputs) as precise:
        return _plain_answers(job, chosen, precise)


def _differs(found: Answers, expected: Answers) -> bool:
    return not all(relative_error(a, b, absolute=True) <= LOOSEST for a, b in zip(found, expected, strict=True))
