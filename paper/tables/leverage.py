"""Weights by leverage: the share of the full posterior's predictive variance that goes through a weight."""

import math

import torch
from torch import Tensor

from demur.offline.laplace.posterior import posterior_precision


def sampled_leverage(jacobian: Tensor, weight: float, prior: float) -> Tensor:
    """mean_x (C J(x)^T)_d^2 / C_dd over the rows of J (M, D), with C = (weight J^T J + prior I)^-1; (D,).

    With A = weight^(1/2) J and K = A A^T + prior I (M, M), Woodbury's identities give

        C A^T = A^T K^-1,  C_dd = (1 - A_d^T K^-1 A_d) / prior.

    `weight` is N / M / sigma^2 for M of N examples: with M = N this is the exact leverage.
    """
    rows = math.sqrt(weight) * jacobian
    solved = torch.cholesky_solve(rows, torch.linalg.cholesky(posterior_precision(rows @ rows.T, prior)))
    explained = (rows * solved).sum(0)
    # A variance is at least 1 / (H_dd + prior), also where 1 - explained is rounding.
    variance = torch.maximum((1 - explained) / prior, 1 / (rows.square().sum(0) + prior))
    leverage: Tensor = solved.square().sum(0) / (weight * len(rows) * variance)
    return leverage
