"""The gate: inputs that are no more unusual than most held-out ones have no uncertainty from the weights.

Two variances tell how unusual an input is, v_S of the chosen weights and v of the added ones, each in units of its
median on held-out data:

    w_k(x) = c (v_S,k(x) / med(v_S) + v(x) / med(v)),   u(x) = mean_k w_k(x) / c,
    v_k(x) = max(1 - u_0 / u(x), 0) w_k(x),

u_0 the 90 % quantile of u there. So mean_k v_k = c max(u - u_0, 0): an ordinary input pays nothing, and there is no
step at u_0. Of a regression, v_S,k stands for v_S,k / r_k^2, and v_k is taken times r_k^2
(`demur.offline.data.likelihood.Regression`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..runtime.arrays import Array, to_numpy

ORDINARY = 0.9  # the share of held-out inputs that pay nothing
LEAST_TYPICAL = 1e-3  # of med(v), in prior variances; and of med(v_S), in variances at the end of the ordinary ones
NOTHING = 1e-6  # of med(v_S), in squares of the temperature or of the noise
TINY = 1e-30  # of u_0, where no input has a variance


@dataclass(frozen=True)
class Gate:
    """subnetwork: c / med(v_S), 0 where that part is left out; added: c / med(v); threshold: c u_0."""

    subnetwork: float
    added: float
    threshold: float

    @classmethod
    def fit(cls, subnetwork: Array, added: Array, unit: float = 1.0) -> "Gate":
        """That of c = 1; mean_k v_S,k / r_k^2 and v (n,) of held-out inputs; unit: T^2, or sigma^2."""
        typical = max(float(np.median(added)), LEAST_TYPICAL)
        own = float(np.median(subnetwork))
        tells = own > max(LEAST_TYPICAL * float(np.quantile(subnetwork, ORDINARY)), NOTHING * unit)
        u = added / typical + (subnetwork / own if tells else 0.0)
        return cls(1 / own if tells else 0.0, 1 / typical, max(float(np.quantile(u, ORDINARY)), TINY))

    def scaled(self, c: float) -> "Gate":
        """That of c times the prior variance."""
        return Gate(c * self.subnetwork, c * self.added, c * self.threshold)

    def __call__(
        self, subnetwork: Tensor, other: Tensor, share: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """v_k (B, K), of it the part of the added weights over r_k^2, (B, 1), v_k without the gate, (B, K), and the
        share of it that passes, max(1 - u_0 / u, 0), (B, 1); v_S (B, K), c v / med(v) (B, 1), r_k^2 (K,), None where
        all are 1."""
        whole = self.subnetwork * subnetwork + (other if share is None else other * share)
        unusual = (whole if share is None else whole / share).mean(1, keepdim=True)
        most = unusual.clamp(min=self.threshold)
        passed = (most - self.threshold) / most  # exactly 0 below
        return passed * whole, passed * other, whole, passed

    def of(self, subnetwork: Array, added: Array, share: Array) -> tuple[Array, ...]:
        """The same in NumPy."""
        arrays = (subnetwork, self.added * np.asarray(added)[:, np.newaxis], share)
        variance, part, whole, passed = map(to_numpy, self(*(torch.from_numpy(np.asarray(each)) for each in arrays)))
        return variance, part.squeeze(1), whole, passed


OPEN = Gate(0.0, 1.0, TINY)  # v as it is
