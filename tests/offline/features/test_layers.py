"""Where features are read."""

import itertools
import re

import pytest
import torch
from torch import Tensor, nn

from offline.features.layers import MOST_FEATURES, feature_layers, middle_layers
from offline.jacobian.find_head import find_head
from tests.support.heads import Residual


def layers_of(model: nn.Module, x: Tensor) -> dict[str, tuple[str, ...]]:
    model.eval()
    return {str(name): paths for name, paths in feature_layers(model, find_head(model, x), x).paths.items()}


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize(
    ("sizes", "middle"),
    [
        ((4, 3), ()),
        ((4, 5, 3), ()),
        ((4, 5, 6, 3), ("2",)),
        ((4, 5, 6, 7, 3), ("2", "4")),
        ((4, 5, 6, 7, 8, 9, 9, 9, 9, 3), ("4", "8", "12")),
    ],
)
def test_layers_in_the_middle(sizes: tuple[int, ...], middle: tuple[str, ...]) -> None:
    found = layers_of(mlp(*sizes), torch.randn(2, sizes[0]))
    assert found["mahalanobis"] == (str(2 * len(sizes) - 4),)
    assert found.get("middle_mahalanobis", ()) == middle


def test_layers_that_share_an_input_count_once() -> None:
    assert layers_of(Residual(), torch.randn(2, 3, 6, 6))["middle_mahalanobis"] == ("conv",)


class Odd(nn.Module):
    """One layer is called twice, one on rows that are no examples, one on a view of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice = nn.Linear(6, 6), nn.Linear(6, 6)
        self.split, self.again, self.wide = nn.Linear(3, 3), nn.Linear(6, 6), nn.Linear(6, 2000)
        self.narrow, self.last = nn.Linear(2000, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.twice(self.twice(self.first(x)))
        y = self.split(y.reshape(-1, 3)).reshape(-1, 6) + self.again(x.flatten(1))
        return self.head(self.last(self.narrow(self.wide(y))))


def test_layers_that_have_no_features_of_their_own() -> None:
    model = Odd().eval()
    x = torch.randn(2, 2, 3).reshape(2, 6)
    assert layers_of(model, x)["middle_mahalanobis"] == ("wide", "last")


class Written(nn.Module):
    """Writes to a layer's input after the layer was called."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.conv(x)
        x.zero_()
        return self.head(y.mean((2, 3)) + x.mean((2, 3)))


def test_features_are_the_means_over_positions() -> None:
    model, x = Written().eval(), torch.randn(3, 1, 7, 7)
    layers = feature_layers(model, find_head(model, x), x)
    with torch.no_grad():
        found = layers.read(model, x)
        stem = model.stem(x)
        torch.testing.assert_close(found["middle_mahalanobis"], [stem.mean((2, 3))])
        torch.testing.assert_close(found["mahalanobis"], [model.conv(stem).mean((2, 3))])
    assert not model.conv._forward_pre_hooks  # noqa: SLF001  torch has no other way to ask


class Tokens(nn.Module):
    """Positions before features."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.first, self.second = nn.Embedding(7, 4), nn.Linear(4, 5), nn.Linear(5, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(torch.relu(self.first(self.embedding(x)))).mean(1))


def test_tokens_are_pooled_over_their_positions() -> None:
    model, x = Tokens().eval(), torch.randint(0, 7, (2, 6))
    layers = feature_layers(model, find_head(model, x), x)
    with torch.no_grad():
        (found,) = layers.read(model, x)["middle_mahalanobis"]
        torch.testing.assert_close(found, torch.relu(model.first(model.embedding(x))).mean(1))


def test_networks_without_features() -> None:
    x = torch.randn(2, 3)
    with pytest.raises(ValueError, match="feature_scores: found a network that does not end in a Linear layer"):
        layers_of(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), x)
    wide = nn.Sequential(nn.Linear(3, MOST_FEATURES + 1), nn.Linear(MOST_FEATURES + 1, 2))
    expected = re.escape(f"found a linear head with {MOST_FEATURES + 1} input features, expected at most")
    with pytest.raises(ValueError, match=expected):
        layers_of(wide, x)
    head = find_head(nn.Linear(3, 2), x)
    assert head is not None
    assert middle_layers(nn.Linear(3, 2), head, x) == ()
