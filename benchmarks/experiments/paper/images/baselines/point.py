"""One network: as it is, or with a temperature that spends the same held-out log-likelihood as our posteriors."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.experiments.frontier.methods import BATCH, Method, softmax
from offline.data.likelihood import Classification
from service.maths.predictive import softmax as softmax_of

TEMPERATURES = np.logspace(0, 1.5, 151)


def logits(model: nn.Module, x: Tensor) -> npt.NDArray[np.float64]:
    """The network's outputs, (n, K) float64."""
    device = next(model.parameters()).device
    with torch.inference_mode():
        return torch.cat([model(part.to(device)).cpu() for part in torch.split(x, BATCH)]).double().numpy()


def state_bytes(model: nn.Module) -> int:
    """Bytes of the parameters and buffers."""
    return sum(values.numel() * values.element_size() for values in model.state_dict().values())


def plain(model: nn.Module) -> Method:
    """The network alone (the paper's MAP)."""
    return Method(lambda x: softmax(model, x), 1.0, {"fit_seconds": 0.0, "bytes": state_bytes(model)})


def tempered(model: nn.Module, held_out: tuple[Tensor, Tensor], budget: float) -> Method:
    """softmax(f / T) with the largest T that costs at most `budget` nats of mean held-out log-likelihood.

    A control: it spends what our posteriors may spend, and knows nothing of the input.
    """
    outputs, classes = logits(model, held_out[0]), held_out[1].numpy()
    likelihood = Classification(outputs.shape[1])
    none = np.zeros_like(outputs)
    scores = np.array([likelihood.log_likelihood(outputs / t, none, classes).mean() for t in TEMPERATURES])
    temperature = float(TEMPERATURES[scores >= scores.max() - budget].max())
    facts = {"fit_seconds": 0.0, "bytes": state_bytes(model), "temperature": temperature}
    return Method(lambda x: softmax_of(logits(model, x) / temperature), 1.0, facts)
