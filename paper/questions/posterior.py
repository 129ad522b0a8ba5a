"""Outputs and their joint covariances under a subnetwork posterior, for a whole grid of prior precisions at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paper.questions.material import Material
from probity.offline.data.likelihood import Classification
from probity.offline.jacobian.jacobian import SubnetworkJacobian
from probity.offline.laplace.posterior import Spectrum

Array = npt.NDArray[Any]
ROWS = 25


@dataclass(frozen=True)
class SubnetworkPosterior:
    """The chosen weights' Jacobian, and H_S = Q diag(e) Q^T; share: lambda_S / lambda = S / D."""

    jacobian: SubnetworkJacobian
    spectrum: Spectrum
    share: float

    @classmethod
    def of(cls, material: Material, indices: Tensor, examples: int) -> "SubnetworkPosterior":
        """The curvature of the first `examples` training examples, as a fit to these."""
        jacobian, size = material.job.jacobian(indices), len(indices)
        likelihood = Classification(int(material.targets.max()) + 1)
        total = torch.zeros(size, size, dtype=torch.float64)
        for x in torch.split(material.inputs[:examples], ROWS):
            mean, j = jacobian(x)
            root = likelihood.sqrt_hessian_product(j, mean).flatten(0, 1).double()
            total.addmm_(root.T, root)
        return cls(jacobian, Spectrum.of(total), size / material.job.layout.total)

    def covariances(self, x: Tensor, precisions: Array) -> tuple[Array, Array]:
        """Outputs (n, K), and J Q diag(1 / (e + lambda_S)) Q^T J^T (G, n, K, K) for each of `precisions` (G,)."""
        weights = 1 / (self.spectrum.values[None] + torch.as_tensor(precisions * self.share)[:, None])
        means, found = [], []
        for part in torch.split(x, ROWS):
            mean, j = self.jacobian(part)
            projected = j.double() @ self.spectrum.vectors
            means.append(mean.double().numpy())
            scaled = projected[None] * weights[:, None, None, :]
            found.append((scaled @ projected.transpose(1, 2)[None]).numpy())
        return np.concatenate(means), np.concatenate(found, axis=1)
