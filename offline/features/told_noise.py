"""Noise that a network gives beside its means, as those trained with `GaussianNLLLoss` do.

The other value r_k(x) of an output is read as the logarithm of its variance, as its variance or as its standard
deviation: as what makes held-out examples likeliest, up to a factor for each output. So with the residuals e of
`demur.offline.features.input_noise`,

    log s_k^2(x) = log sigma_k^2(x) + b_k,

b_k such that the mean of e^2 / s_k^2 is one, in the place of the s_k that is fitted there. sigma is the factor of all.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ..network.outputs import OutputForm
from ..runtime.arrays import Array, to_numpy
from .input_noise import ERRORS, InputNoise, log_likelihoods

ROWS = 256
LEAST_GAIN = 1e-3  # nats an example: values that are nearly the same for all gain less, and mean nothing
SMALLEST = 1e-30  # of a variance far from the data, where it may be none
READINGS: dict[str, Callable[[Tensor], Tensor]] = {  # to log sigma_k^2; ties go to the first
    "log variance": lambda r: r,
    "variance": lambda r: r.clamp(min=SMALLEST).log(),
    "standard deviation": lambda r: 2 * r.clamp(min=SMALLEST).log(),
}


@dataclass(frozen=True)
class ToldNoise:
    """Where the values are in what the network returns, and what they are."""

    form: OutputForm
    reading: str

    def __call__(self, model: nn.Module, x: Tensor) -> Tensor:
        """log sigma_k^2 (B, K); x (B, *input_shape)."""
        return READINGS[self.reading](_told(model, self.form, x))

    @classmethod
    def fit(
        cls, form: OutputForm, model: nn.Module, inputs: Tensor, squares: Array
    ) -> "tuple[ToldNoise, InputNoise, Array] | None":
        """With s from log sigma_k^2, and s (n, K) of n held-out examples; None for a network of means alone, and where
        no reading makes the examples likelier than one noise for all, as `InputNoise.fit` asks.

        squares e^2 (n, K), whose means are one, float64.
        """
        if not form.two_values:
            return None
        with torch.no_grad():
            told = torch.cat([_told(model, form, x).double().cpu() for x in torch.split(inputs, ROWS)])
        best: tuple[ToldNoise, InputNoise, Array] | None = None
        for reading, log_variance in READINGS.items():
            if reading != "log variance" and not bool((told > 0).all()):
                continue
            noise, scale = _fitted(to_numpy(log_variance(told)), squares)
            least = max(ERRORS * noise.error, LEAST_GAIN, 0.0 if best is None else best[1].gain)
            if noise.gain > least:  # never where one is not finite
                best = cls(form, reading), noise, scale
        return best


def _fitted(log_variances: Array, squares: Array) -> tuple[InputNoise, Array]:
    """From log sigma_k^2 and e^2, (n, K) both."""
    with np.errstate(all="ignore"):  # of a reading that is wrong
        offset = np.log((squares * np.exp(-log_variances)).mean(axis=0))
        logarithms = log_variances + offset
        gains = (log_likelihoods(logarithms, squares) + squares / 2).sum(axis=1)
        gain, error = float(gains.mean()), float(gains.std()) / len(gains) ** 0.5
        scale = np.exp(logarithms / 2)
    low, high = (torch.from_numpy(end(logarithms, axis=0) / 2) for end in (np.min, np.max))
    outputs = squares.shape[1]
    weights, slopes = torch.eye(outputs).double() / 2, torch.zeros(outputs).double()
    noise = InputNoise(weights, slopes, torch.from_numpy(offset / 2), low, high, gain, error)
    return noise, scale


def _told(model: nn.Module, form: OutputForm, x: Tensor) -> Tensor:
    """r (B, K): what the network returned before its hook took the means."""
    found: list[Tensor] = []
    hook = model.register_forward_hook(lambda _, __, returned: found.append(form.beside(returned)), prepend=True)
    try:
        model(x)
    finally:
        hook.remove()
    return found[0]
