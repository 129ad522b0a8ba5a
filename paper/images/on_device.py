"""A bundle's predictive computed with torch, on the device of the network: onnxruntime here has CPUs only.

With the paper's 42,438 weights a prediction takes 36 billion multiplications beside the Jacobian.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from demur.offline.config import FitConfig
from demur.offline.data.given import Given
from demur.offline.job import prepare
from demur.offline.laplace.served_factor import WholeFactor
from demur.offline.runtime.distributed import DistributedContext
from demur.offline.runtime.progress import silent
from demur.service.bundle import Bundle
from demur.service.maths.predictive import link_approx
from paper.images.problems import Examples

Array = npt.NDArray[Any]
ROWS = 32


def predictive(model: nn.Module, bundle: Bundle, examples: Examples) -> Callable[[Tensor], Array]:
    """Inputs (n, *shape) -> probabilities (n, K), as `Predictor.predict` gives them, up to 32-bit rounding.

    examples: a few of the training data.
    """
    device = next(model.parameters()).device
    config = FitConfig(subnetwork_size=1, prior_precision=1.0)
    job = prepare(model, Given("train_loader", [examples]), config, device, DistributedContext(), silent)
    jacobian = job.jacobian(torch.as_tensor(bundle.subnetwork_indices))
    factor = WholeFactor(torch.as_tensor(bundle.posterior.scale_tril, device=device))
    temperature, link = bundle.manifest.temperature, bundle.manifest.link

    def probabilities(x: Tensor) -> Array:
        found = []
        for part in torch.split(x, ROWS):
            mean, j = jacobian(part.to(device))
            outputs = mean.detach().cpu()
            variance = factor.variance(j).cpu().numpy()
            found.append(link_approx(outputs.numpy(), variance, temperature, link))
        return np.concatenate(found)

    return probabilities
