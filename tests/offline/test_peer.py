"""The same posterior from laplace-torch: H_S and variances to 1e-4, for the same indices and prior.

Left out of the comparison, as they are wrong in the peer's release 0.3: its grid search (the metric is never reset
between grid points), its subnetwork `sample` (a missing transpose) and its empirical-Fisher factor for regression.
"""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from demur.offline.data.likelihood import likelihood_of
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import accumulate_ggn
from demur.offline.laplace.posterior import factor, posterior_precision
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.maths.predictive import functional_variance
from tests.support.cases import CASES, Case

laplace = pytest.importorskip("laplace", reason="the peer, laplace-torch, is not installed (make test installs it)")

PRIOR, SIGMA = 2.5, 0.6


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.likelihood != "multilabel"], ids=lambda case: case.name
)
def test_same_precision_and_variance(case: Case, share: float) -> None:
    model = case.model().eval()
    inputs, targets = case.data(20)
    test_inputs = case.data(4, seed=9)[0]
    layout = WeightLayout.of(model)
    generator = torch.Generator().manual_seed(5)
    indices = torch.randperm(layout.total, generator=generator)[: max(1, int(share * layout.total))].sort().values
    sigma = SIGMA if case.likelihood == "regression" else 1.0

    peer = laplace.Laplace(
        model,
        case.likelihood,
        subset_of_weights="subnetwork",
        hessian_structure="full",
        subnetwork_indices=indices,
        prior_precision=PRIOR,
        sigma_noise=sigma,
    )
    peer.fit(DataLoader(TensorDataset(inputs, targets), batch_size=10))
    peer_jacobian, _ = peer.backend.jacobians(test_inputs)
    peer_covariance = peer.functional_variance(peer_jacobian)

    jacobian = make_jacobian(private_copy(model, torch.device("cpu")), layout, indices, inputs)
    curvature = accumulate_ggn(jacobian, [(inputs, targets)], likelihood_of(case.likelihood, case.outputs))
    precision = posterior_precision(curvature.ggn / sigma**2, PRIOR)
    scale_tril, _ = factor(precision)
    variance = functional_variance(jacobian(test_inputs)[1].double().numpy(), scale_tril.numpy())

    theirs = peer.posterior_precision.detach().double().numpy()
    assert np.abs(precision.numpy() - theirs).max() <= 1e-4 * np.abs(theirs).max()
    their_variance = peer_covariance.detach().diagonal(dim1=1, dim2=2).numpy()
    np.testing.assert_allclose(variance, their_variance, rtol=1e-4, atol=1e-6 * float(their_variance.max()))
