"""What a prediction with some chosen weights costs, in forward passes of the plain network: counted, and timed."""

import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline.export.graph import export_variance
from offline.export.price import CALL_WORK, Price, graph_price
from offline.jacobian.output_rule import AllOutputs, OutputRule
from offline.jacobian.plan import trusted_routes
from offline.jacobian.routes import Chosen
from offline.job import Job
from offline.laplace.served_factor import served_factor
from offline.network.call_order import CallOrder
from offline.network.weights import Owners, parameter_owners
from offline.runtime.arrays import to_numpy
from service.maths.posterior_factor import CholeskyPosterior


@dataclass
class Touched:
    """What chosen weights touch: parameters whose features reach the head separately, and those that need a backward
    pass for each variance; how many of the weights lie outside the head, and at most of the head for one output; and
    whether the network reads some of the head's weights elsewhere too, no one knows how deep."""

    separate: list[str]
    one_by_one: list[str]
    outside: int
    most: int
    read_elsewhere: bool = False


@dataclass(frozen=True)
class PriceModel:
    """Counts multiply-adds: of the backward passes, and of the product with the posterior's factor.

    It leaves out what is bound by memory, and what each operator costs however little it computes, but for one call of
    the whole graph. closed: the parameters whose closed form holds, tried as the Jacobian's routes are.
    """

    job: Job
    order: CallOrder
    owners: Owners
    closed: frozenset[str]

    @classmethod
    def of(cls, job: Job, example: Tensor) -> "PriceModel":
        """From one forward pass of `example` (1, *input_shape)."""
        owners = parameter_owners(job.network)
        return cls(job, CallOrder.of(job.network, example), owners, _closed_forms(job, owners))

    def cheapest(self, indices: Tensor) -> float:
        """The least price by any of the job's rules."""
        return min(self.predict(indices, rule) for rule in self.job.rules)

    def predict(self, indices: Tensor, rule: OutputRule) -> float:
        """1 for the forward pass, K for each backward pass by its share of the network (1 for layers whose features
        reach the head separately, 0 for the head), and K n^2 + n m K + m^2 K for the factor, with n weights outside the
        head and at most m of the head for an output; where M variances are computed, M in place of K, and M S^2."""
        outputs, found = self.job.likelihood.outputs, self.touched(indices)
        n, m = found.outside, found.most
        product = rule.count(outputs) * len(indices) ** 2
        if isinstance(rule, AllOutputs):
            product = outputs * (n**2 + n * m + m**2)
        backward = self.order.backward_share(found.separate) if found.separate else 0.0
        share = self.order.backward_share(found.one_by_one) if found.one_by_one else 0.0
        backward += rule.count(outputs) * (1.0 if found.read_elsewhere else share)
        forward = self.order.multiply_adds
        return 1 + (backward * forward + product) / (forward + CALL_WORK)

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
    for paths in ({head.path}, {head.path, *head.separate}):
        chosen = tuple(
            Chosen(parameter, torch.arange(parameter.size, device=job.device))
            for parameter in job.layout.parameters
            if {path for path, _ in owners[parameter.name]} <= paths
        )
        found |= trusted_routes(job.network, head, chosen, owners, job.example).closed if chosen else frozenset()
    return found


def measured(job: Job, indices: Tensor, rule: OutputRule, example: Tensor) -> Price:
    """Of the graph that would be served; raises `ExportError`.

    The values of the factor do not matter for its time; example (1, *input_shape).
    """
    jacobian, outputs = job.jacobian(indices, rule), job.likelihood.outputs
    identity = CholeskyPosterior(np.eye(len(indices), dtype=np.float64))
    factor = served_factor(jacobian, identity, outputs, sys.maxsize)
    assert factor is not None
    model, _ = export_variance(jacobian, job.example, outputs, factor)
    return graph_price(model, to_numpy(example))
