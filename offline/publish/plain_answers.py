"""What plain torch answers for the verification batch: the truth that the served graphs are compared with."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from demur.service.maths.posterior_factor import CholeskyPosterior

from ..export.verify import ADDED_SHARE, Truth
from ..features.added_weights import AddedWeights
from ..jacobian.jacobian import SubnetworkJacobian
from ..jacobian.plain import plain_jacobian
from ..jacobian.routes import Chosen
from ..job import Job
from ..network.finite import check_finite_jacobian, check_finite_outputs
from ..network.model_copy import highest_precision, private_copy
from ..runtime.arrays import Array, to_numpy

VERIFIED = "the verification batch, held-out examples,"
ROUNDING_STEP = 1e-6  # relative; float32 rounds to 6e-8, and a sum of many terms to a multiple of that


@dataclass(frozen=True)
class PlainAnswers:
    """Mean, derivatives and variances by torch's own differentiation; inputs (n, *input_shape).

    added: the added weights, if there are any.
    """

    job: Job
    jacobian: SubnetworkJacobian
    posterior: CholeskyPosterior
    inputs: Tensor
    added: AddedWeights | None = None

    def truth(self) -> Truth:
        """In float64, or in float32 where the network cannot run otherwise."""
        with highest_precision(self.job.network, self.inputs) as precise:
            found, derivatives, v = self._of(self.job.network, precise)
        least, share = dict[str, Array](), self.job.likelihood.added_share
        if self.added is not None:
            ungated = self._gated(self.added, self.posterior.variance(derivatives), v)[2] / share
            typical, floor = self.added.gate.added * v, ADDED_SHARE * self.added.gate.added
            least = {"variance": np.maximum(ungated, floor), "added_variance": np.maximum(typical, floor)}
        precision, unit = str(found["mean"].dtype), np.sqrt(share)
        return Truth(to_numpy(self.inputs), **found, precision=precision, unit=unit, least=least)

    def _gated(self, added: AddedWeights, subnetwork: Array, v: Array) -> tuple[Array, ...]:
        """As `Gate.of`."""
        return added.gate.of(subnetwork, v, self.job.likelihood.added_share.astype(subnetwork.dtype))

    def rounding(self, truth: Truth) -> dict[str, float]:
        """The effect of rounding on the network: plain torch in float32, of each example alone too, and with every
        weight and input off by a few float32 steps.

        In a large network some units lie so near a kink that rounding makes their derivative jump. Of a file only the
        last weights are torch's: what its own operators round, the inputs show.
        """
        single = truth.errors(self._of(self.job.network, self.inputs)[0])
        each = [self._of(self.job.network, example)[0] for example in torch.split(self.inputs, 1)]
        alone = truth.errors({name: np.concatenate([one[name] for one in each]) for name in each[0]})
        shaken = private_copy(self.job.network, self.job.device, torch.float64)
        generator = torch.Generator(self.job.device).manual_seed(0)
        inputs = self.inputs.clone()
        for values in (*shaken.parameters(), *([inputs] if inputs.is_floating_point() else [])):
            noise = torch.randn(values.shape, generator=generator, device=self.job.device, dtype=values.dtype)
            values.mul_(1 + ROUNDING_STEP * noise)
        if truth.precision == "float32":
            shaken.float()
            moved = truth.errors(self._of(shaken, inputs)[0])
        else:
            with highest_precision(shaken, inputs) as precise:
                moved = truth.errors(self._of(shaken, precise)[0])
        return {name: max(single[name], alone[name], moved[name]) for name in single}

    def _of(self, network: nn.Module, inputs: Tensor) -> tuple[dict[str, Array], Array, Array]:
        """Mean, variance and what added weights give; the derivatives; and v; in the network's precision."""
        chosen = tuple(Chosen(p, positions) for p, positions in self.job.layout.locate(self.jacobian.indices))
        with torch.no_grad():
            outputs = network(inputs)
        check_finite_outputs(network, inputs, outputs, VERIFIED)
        derivatives = plain_jacobian(network, chosen, inputs)
        check_finite_jacobian(network, inputs, derivatives, VERIFIED)
        mean, jacobian = to_numpy(outputs), to_numpy(derivatives)
        variance = self.posterior.variance(jacobian)
        found = {"mean": mean, "variance": variance}
        if self.added is None:
            return found, jacobian, np.zeros(len(mean))
        with torch.no_grad():
            served = self.added.to(outputs)
            scores, psi = served.of(network, inputs)
        v, features = to_numpy(scores[:, 0]), to_numpy(scores[:, 1:])
        variance, part, _, passed = self._gated(self.added, variance, v)
        found |= {"variance": variance, "added_variance": part, "feature_scores": features}
        if served.noise is not None:
            found["noise_scale"] = to_numpy(served.noise(psi, outputs, torch.from_numpy(passed).to(outputs)))
        return found, jacobian, v
