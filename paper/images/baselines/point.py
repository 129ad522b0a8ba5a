"""One network: as it is, or with a temperature that spends the same held-out log-likelihood as our posteriors."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.experiments.frontier.methods import BATCH, Method, softmax
from demur.offline.data.likelihood import class_log_likelihood
from demur.service.maths.predictive import softmax as softmax_of

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
    return Method(lambda x: softmax(model, x), 1.0, {"bytes": state_bytes(model)})


def tempered(model: nn.Module, held_out: tuple[Tensor, Tensor], budget: float) -> Method:
    """softmax(f / T) with the largest T that costs at most `budget` nats of mean held-out log-likelihood.

    A control: it spends what our posteriors may spend, and knows nothing of the input.
    """
    return tempered_ensemble([model], held_out, budget)


def tempered_ensemble(models: Sequence[nn.Module], held_out: tuple[Tensor, Tensor], budget: float) -> Method:
    """The mean of softmax(f_m / T) over several networks, with T as for one network."""

    def probabilities(x: Tensor) -> npt.NDArray[np.float64]:
        return averaged(np.stack([logits(model, x) for model in models]), temperature)

    outputs, classes = np.stack([logits(model, held_out[0]) for model in models]), held_out[1].numpy()
    scores = np.array([class_log_likelihood(averaged(outputs, t), classes).mean() for t in TEMPERATURES])
    temperature = float(TEMPERATURES[scores >= scores.max() - budget].max())
    facts = {"bytes": sum(map(state_bytes, models)), "temperature": temperature}
    return Method(probabilities, float(len(models)), facts)


def averaged(outputs: npt.NDArray[np.float64], temperature: float) -> npt.NDArray[np.float64]:
    """(M, n, K) -> (n, K)."""
    mean: npt.NDArray[np.float64] = softmax_of(outputs / temperature).mean(axis=0)
    return mean
