"""One small batch through the whole job before hours of work: Jacobian, export, onnxruntime, check against torch.

Which weights will be chosen is not known yet, so a few of every parameter that may be chosen stand for them: each
layer's rule and each backward pass is exported once.
"""

import numpy as np
import torch
from torch import Tensor

from demur.service.inference.onnx_runtime import onnxruntime

from ..export.errors import ExportError
from ..export.graph import export_jacobian
from ..export.verify import LOOSEST, VerificationError, relative_error
from ..jacobian.mixtures import Mixing
from ..jacobian.output_rule import AllOutputs, OutputRule, TopOutputs
from ..jacobian.plain import plain_jacobian
from ..jacobian.plan import few_mixtures
from ..jacobian.routes import Chosen
from ..job import Job
from ..network.model_copy import highest_precision
from ..network.unsupported import SUPPORTED
from ..runtime.arrays import Array, to_numpy
from ..runtime.progress import one_step
from ..selection.registry import select, strategy_of
from ..selection.select import selection_context

EXAMPLES = 2
MOST_OUTPUTS = 64  # a backward pass for each
OF_EACH_PARAMETER = 2  # weights
Answers = tuple[Array, Array]
"""Mean (B, K), and the derivatives of a few mixtures of the outputs (B, M, S)."""


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
    jacobian = job.jacobian(indices, _rule(job))
    try:
        graph, _ = export_jacobian(jacobian, job.example, job.likelihood.outputs)
    except ExportError as error:
        if error.stage == "forward":  # whatever is chosen, it is part of the graph
            raise
        raise ExportError(f"{error}. {_what_can_be_chosen(job)}") from error
    exported = _answers(job, graph, inputs)
    chosen = tuple(Chosen(p, positions) for p, positions in job.layout.locate(indices.to(job.device)))
    single = _plain_answers(job, chosen, inputs)
    if _differs(exported, single) and _differs(exported, _precise_answers(job, chosen, inputs)):
        raise VerificationError(
            "verification: on a trial batch the exported network's answers differ from torch's by more than "
            f"{LOOSEST:.0e} (relative); nothing was published. A model that mixes the examples of a batch, or draws "
            f"random numbers, cannot be served (see {SUPPORTED})"
        )


def _rule(job: Job) -> OutputRule:
    """The job's own; where that takes all of many outputs, two stand for them."""
    every = isinstance(job.rule, AllOutputs) and job.likelihood.outputs > MOST_OUTPUTS
    return TopOutputs(2) if every else job.rule


def _few(job: Job) -> Mixing:
    """Mixtures that stand for all outputs, or those of the rule."""
    rule = _rule(job)
    return few_mixtures if isinstance(rule, AllOutputs) else rule.mixing


def _what_can_be_chosen(job: Job) -> str:
    """Whether the last layer alone could be exported: where not, the cause is no backward pass."""
    context = selection_context(job, job.layout.total, None)
    try:
        last = select("last-layer", context, {}).indices
        export_jacobian(job.jacobian(last[:OF_EACH_PARAMETER], _rule(job)), job.example, job.likelihood.outputs)
    except (ExportError, ValueError):
        return "The network cannot be exported for any choice of weights"
    return (
        "The network itself can be exported, and so can weights of its last layer: selection='last-layer', or `within` "
        "the modules behind the one at fault"
    )


def _answers(job: Job, graph: bytes, inputs: Tensor) -> Answers:
    """onnxruntime's, and once more with every example alone: the larger batch must not matter."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    joint = _run(session, job, inputs)
    alone = [_run(session, job, one) for one in torch.split(inputs, 1)]
    single = np.concatenate([mean for mean, _ in alone]), np.concatenate([j for _, j in alone])
    if _differs(joint, single):
        raise VerificationError(
            "verification: the exported network answers otherwise when examples come one at a time; nothing was "
            "published. A model that mixes the examples of a batch, or draws random numbers, cannot be served (see "
            f"{SUPPORTED})"
        )
    return joint


def _run(session: onnxruntime.InferenceSession, job: Job, inputs: Tensor) -> Answers:
    mean, jacobian = session.run(["mean", "jacobian"], {"inputs": to_numpy(inputs)})
    if not isinstance(_rule(job), AllOutputs):
        return mean, jacobian
    mixtures = few_mixtures(torch.as_tensor(mean, dtype=torch.float64)).cotangents(torch.as_tensor(mean).double())
    return mean, np.einsum("bks,bmk->bms", jacobian, to_numpy(mixtures))


def _plain_answers(job: Job, chosen: tuple[Chosen, ...], inputs: Tensor) -> Answers:
    """Torch's own differentiation, in the network's precision."""
    with torch.no_grad():
        mean = job.network(inputs)
    return to_numpy(mean), to_numpy(plain_jacobian(job.network, chosen, inputs, _few(job)))


def _precise_answers(job: Job, chosen: tuple[Chosen, ...], inputs: Tensor) -> Answers:
    """The same in float64, where the network runs in it."""
    with highest_precision(job.network, inputs) as precise:
        return _plain_answers(job, chosen, precise)


def _differs(found: Answers, expected: Answers) -> bool:
    return not all(relative_error(a, b, absolute=True) <= LOOSEST for a, b in zip(found, expected, strict=True))
