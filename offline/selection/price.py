"""What a prediction with some chosen weights costs, in forward passes of the plain network, by a count.

It counts multiply-adds, and what is bound by something else, in multiply-adds that take as long. A core does some
7e10 of float32 a second in onnxruntime. The constants are measured on convolutions, MLPs, residual networks and
transformers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..features.activations import INPUTS, TEXTURE
from ..features.added_weights import LINK_FEATURES, SCORE_FEATURES
from ..features.coordinates import DIRECTIONS
from ..features.layers import MOST_INPUTS, FeatureLayers
from ..jacobian.plan import trusted_routes
from ..jacobian.routes import Chosen
from ..job import Job
from ..laplace.added_fit import layer_widths
from ..network.call_order import CallOrder
from ..network.weights import Owners, parameter_owners

CALL_WORK = 2**18  # a call of the smallest graph
LEAST_WORK = 2**22  # the least that a call of the plain network counts as: a request costs several times as much
OPERATOR_WORK = 2**15  # an operator of the graph, however little it computes
POOLED_WORK = 2**8  # a number of a convolution's input, whose mean and deviation are activations of added weights
CROSSED_WORK = 2**6  # a number in the output of a layer that a backward pass crosses
GATHERED_WORK = 384  # an entry's input at a position of its layer, gathered, and multiplied for all outputs
READ_WORK = 2**3  # a number of the posterior's factor, read once a call
COSINE_WORK = 2**7  # a cosine
# Operators of the graph: for both variances of added weights, for the head, for a parameter outside it.
ADDED_OPERATORS, HEAD_OPERATORS, PARAMETER_OPERATORS = 55, 7, 30
BATCHES = (1, 16)  # examples


@dataclass
class Touched:
    """What chosen weights touch: parameters whose features reach the head separately, and those that need a backward
    pass for each variance; how many of the weights lie outside the head, and at most of the head for one output; and
    whether the network reads some of the head's weights elsewhere too, no one knows how deep. entries: how many weights
    of each parameter outside the head."""

    separate: list[str]
    one_by_one: list[str]
    outside: int
    most: int
    read_elsewhere: bool = False
    entries: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PriceModel:
    """Counts the work of a prediction: the backward passes, the entries of the Jacobian, the product with the
    posterior's factor and the added weights, in multiply-adds; and what is bound by memory, or by the number of
    operators, in the multiply-adds that take as long.

    closed: the parameters whose closed form holds, tried as the Jacobian's routes are. added: work of added weights.
    """

    job: Job
    order: CallOrder
    owners: Owners
    closed: frozenset[str]
    added: int = 0

    @classmethod
    def of(cls, job: Job, example: Tensor) -> "PriceModel":
        """From one forward pass of `example` (1, *input_shape)."""
        owners = parameter_owners(job.network)
        order = CallOrder.of(job.network, example)
        return cls(job, order, owners, _closed_forms(job, owners), work_of_added(job, order))

    def predict(self, indices: Tensor) -> float:
        """Forward passes of the plain network, with the added weights: the larger of one example and of a batch."""
        found = self.touched(indices)
        operators = HEAD_OPERATORS + PARAMETER_OPERATORS * len(found.separate + found.one_by_one)
        operators += ADDED_OPERATORS if self.job.layers is not None else 0
        product, read = self._product(found)
        extra = self._backward(found) + product + self.added
        forward = self.order.multiply_adds
        return 1 + max(
            (batch * extra + read * READ_WORK + operators * OPERATOR_WORK)
            / max(batch * forward + CALL_WORK, LEAST_WORK)
            for batch in BATCHES
        )

    def _product(self, found: Touched) -> tuple[int, int]:
        """With the factor: K n^2 + n m K + m^2 K multiply-adds, with n weights outside the head and at most m of the
        head for an output. And the numbers of the factor."""
        outputs, n, m = self.job.likelihood.outputs, found.outside, found.most
        own = outputs * (n * m + m**2)
        return outputs * n**2 + own, n**2 + own

    def _backward(self, found: Touched) -> float:
        """K passes by the share of the network that they cross (1 for layers whose features reach the head separately,
        none for the head), and what the chosen entries take."""
        order = self.order
        work = float(sum(GATHERED_WORK * order.positions(name) * number for name, number in found.entries.items()))
        for names, passes in ((found.separate, 1), (found.one_by_one, self.job.likelihood.outputs)):
            if names:
                share = 1.0 if found.read_elsewhere and names is found.one_by_one else order.backward_share(names)
                work += passes * (share * order.multiply_adds + CROSSED_WORK * order.crossed(names))
        return work

    def touched(self, indices: Tensor) -> Touched:
        """By which route the derivatives come."""
        head, found = self.job.head, Touched([], [], 0, 0)
        own = torch.zeros(self.job.likelihood.outputs, dtype=torch.int64)
        for parameter, inside in self.job.layout.locate(indices.cpu()):
            path, role = self.owners[parameter.name][0]
            closed = head is not None and parameter.name in self.closed
            if head is not None and closed and path == head.path:
                belongs = inside if role == "bias" else inside // head.layer(self.job.network).in_features
                own += torch.bincount(belongs, minlength=len(own))
                continue
            found.outside += len(inside)
            found.entries[parameter.name] = len(inside)
            found.read_elsewhere |= head is not None and path == head.path
            (found.separate if closed else found.one_by_one).append(parameter.name)
        found.most = int(own.max())
        return found


def _closed_forms(job: Job, owners: Owners) -> frozenset[str]:
    """The parameters of the head, and of layers whose features reach it separately, whose closed form is right: a
    network may read them elsewhere, too."""
    if (head := job.head) is None:
        return frozenset()
    found = frozenset[str]()
    for paths in ({head.path, *head.separate}, {head.path}):
        chosen = tuple(
            Chosen(parameter, torch.arange(parameter.size, device=job.device))
            for parameter in job.layout.parameters
            if {path for path, _ in owners[parameter.name]} <= paths
        )
        if {c.parameter.name for c in chosen} <= found:
            break
        found |= trusted_routes(job.network, head, chosen, owners, job.example).closed
    return found


def work_of_added(job: Job, order: CallOrder) -> int:
    """Of both variances of the added weights, for one example; nothing without them."""
    if job.layers is None:
        return 0
    read = [call.inputs for call in order.calls if call.path in job.layers.paths and call.positions > 1]
    seen = job.example[0].numel() if TEXTURE in job.layers.score else 0
    return _added_work(job.layers, layer_widths(job)) + POOLED_WORK * (sum(read) + seen)


def _added_work(layers: FeatureLayers, widths: Mapping[str, int]) -> int:
    """Multiply-adds of both variances for one example, cosines among them; widths: F_l by path."""
    found = 0
    for paths, size in ((layers.link, LINK_FEATURES), (layers.score, SCORE_FEATURES)):
        width = sum(widths[path] for path in paths)
        coordinates = min(width, DIRECTIONS) + 1
        found += 2 * width * DIRECTIONS + size.features * (coordinates + size.kept + COSINE_WORK)
    inputs = widths[INPUTS] if INPUTS in layers.score else 0
    return found + (inputs**2 if inputs <= MOST_INPUTS else 0)
