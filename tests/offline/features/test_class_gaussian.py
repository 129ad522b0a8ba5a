"""The distance of features to the nearest class, against a dense one in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor

from offline.features.class_gaussian import MOST_DIRECTIONS, SHRINKAGE, ClassSums, unit
from tests import reference

CPU = torch.device("cpu")


def clusters(count: int, features: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features of length 1 around one centre for each class, the last of which has no example."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes - 1, (count,), generator=generator)
    centres = torch.randn(classes, features, generator=torch.Generator().manual_seed(1)).abs()
    scale = torch.linspace(0.05, 0.5, features)
    return unit([centres[labels] + scale * torch.randn(count, features, generator=generator)]), labels


def summed(u: Tensor, labels: Tensor, classes: int) -> ClassSums:
    sums = ClassSums(u.shape[1], classes, CPU)
    sums.add(u, labels)
    return sums


@pytest.mark.parametrize(("count", "features"), [(60, 5), (60, MOST_DIRECTIONS), (80, MOST_DIRECTIONS + 4), (9, 40)])
def test_the_distance_of_the_definition(count: int, features: int) -> None:
    u, labels = clusters(count, features, 4)
    asked = torch.cat([u[:3], clusters(3, features, 4, seed=2)[0], unit([torch.ones(1, features)])])
    found = summed(u, labels, 4).gaussian().to(u.double()).distance(asked.double())
    expected = [
        reference.class_distance(x, u.double().numpy(), labels.tolist(), min(features, MOST_DIRECTIONS), SHRINKAGE)
        for x in asked.double().numpy()
    ]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-7)


def test_float32_is_enough_where_the_classes_are_far_apart() -> None:
    """As in a network trained to the end: within a class, features differ in the fourth digit."""
    centres = torch.eye(10, 80)
    labels = torch.arange(200) % 10
    u = unit([centres[labels] + 1e-4 * torch.randn(200, 80, generator=torch.Generator().manual_seed(0))])
    gaussian = summed(u.double(), labels, 10).gaussian()
    asked = torch.cat([u[:5], unit([torch.rand(5, 80, generator=torch.Generator().manual_seed(3))])])
    precise = gaussian.to(asked.double()).distance(asked.double())
    np.testing.assert_allclose(gaussian.to(asked).distance(asked), precise, rtol=1e-3)


def test_batches_add_up() -> None:
    u, labels = clusters(50, 6, 3)
    whole, parts = summed(u, labels, 3), ClassSums(6, 3, CPU)
    for some, own in zip(u.split(7), labels.split(7), strict=True):
        parts.add(some, own)
    for one, other in zip(whole.tensors, parts.tensors, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_foreign_features_are_further_away() -> None:
    u, labels = clusters(300, 40, 4)
    gaussian = summed(u, labels, 4).gaussian().to(u)
    usual, foreign = clusters(100, 40, 4, seed=5)[0], unit([torch.randn(100, 40)])
    assert gaussian.distance(usual).max() < gaussian.distance(foreign).min()


def test_features_that_are_all_the_same() -> None:
    u = unit([torch.ones(20, 3)])
    gaussian = summed(u, torch.zeros(20, dtype=torch.long), 2).gaussian().to(u)
    assert torch.isfinite(gaussian.distance(unit([torch.tensor([[1.0, 1, 1], [1, 0, 0]])]))).all()


def test_each_layer_has_the_same_length() -> None:
    parts = [torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[1e-14, 0, 0], [1e18, 1e18, 0]])]
    found = unit(parts)
    np.testing.assert_allclose(found[0], reference.unit_features([x[0].double().numpy() for x in parts]), rtol=1e-6)
    np.testing.assert_allclose(found[1], [0, 0, 0.5, 0.5, 0], rtol=1e-6)
    torch.testing.assert_close(unit(parts[:1])[0], torch.tensor([0.6, 0.8]))
