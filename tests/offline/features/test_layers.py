"""Which layers added weights read, and what they read of them."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from demur.offline.data.changes import kind_of
from demur.offline.features.activations import INPUTS, TEXTURE, read_activations
from demur.offline.features.layers import MOST_FEATURES, FeatureLayers, choose_layers, named_layers
from demur.offline.jacobian.find_head import find_head
from demur.service.bundle import InputPart
from tests.support.heads import Residual


def layers_of(model: nn.Module, x: Tensor) -> FeatureLayers:
    model.eval()
    head = find_head(model, x)
    found = choose_layers(model, x, kind_of(x), None if head is None else head.path)
    assert found is not None
    return found


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@pytest.mark.parametrize(
    ("sizes", "link", "score"),
    [
        ((4, 3), (INPUTS,), (INPUTS,)),
        ((4, 5, 3), ("2",), (INPUTS, "2")),
        ((4, 5, 6, 3), ("4",), (INPUTS, "4")),
        ((4, 5, 6, 7, 3), ("6",), (INPUTS, "6")),
        ((4, 5, 6, 7, 8, 3), ("6", "8"), (INPUTS, "6", "8")),
        ((4, 5, 6, 7, 8, 9, 9, 9, 9, 3), ("12", "16"), (INPUTS, "12", "16")),
    ],
)
def test_late_layers_for_both_and_the_inputs_for_the_distance(
    sizes: tuple[int, ...], link: tuple[str, ...], score: tuple[str, ...]
) -> None:
    assert layers_of(mlp(*sizes), torch.randn(2, sizes[0])) == FeatureLayers(link, score)


def test_layers_that_share_an_input_count_once() -> None:
    found = layers_of(Residual(), torch.randn(2, 3, 6, 6))
    assert found.score == (TEXTURE, "conv", "head")  # both late layers are the head
    assert len(found.paths) == len(set(found.paths))


class Words(nn.Module):
    """Takes tokens packed in a table."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.words(x.long()).mean(1))
        return out


def test_the_numbers_of_tokens_are_not_read() -> None:
    x = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    found = choose_layers(Words().eval(), x, kind_of(x, (InputPart("ids", (3,), "int64"),)))
    assert found is not None
    assert not {INPUTS, TEXTURE} & {*found.paths}
    as_table = choose_layers(Words().eval(), x, kind_of(x))
    assert as_table is not None
    assert INPUTS in as_table.score


class Odd(nn.Module):
    """One layer is called twice, one on rows that are no examples, one on a view of the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice = nn.Linear(6, 6), nn.Linear(6, 6)
        self.split, self.again, self.wide = nn.Linear(3, 3), nn.Linear(6, 6), nn.Linear(6, MOST_FEATURES + 1)
        self.narrow, self.last = nn.Linear(MOST_FEATURES + 1, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.twice(self.twice(self.first(x)))
        y = self.split(y.reshape(-1, 3)).reshape(-1, 6) + self.again(x.flatten(1))
        return self.head(self.last(self.narrow(self.wide(y))))


def test_layers_that_have_no_activations_of_their_own() -> None:
    assert set(layers_of(Odd(), torch.randn(2, 6)).paths) == {INPUTS, "head"}


class Wrapped(nn.Module):
    """Appends a logit of zero, so that no linear layer gives the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(4, 5, 6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return torch.cat([y, torch.zeros_like(y[:, :1])], dim=1)


class Pooled(nn.Module):
    """Ends in a convolution and a mean over all places."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).mean((2, 3))


def test_networks_that_do_not_end_in_a_linear_layer() -> None:
    assert layers_of(Wrapped(), torch.randn(2, 4)) == FeatureLayers(("inner.4",), (INPUTS, "inner.4"))
    assert layers_of(Pooled(), torch.randn(2, 1, 8, 8)) == FeatureLayers(("body.2",), (TEXTURE, INPUTS, "body.2"))


class Bare(nn.Module):
    """No layer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Recurrent(nn.Module):
    """Only its head can be read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.state, self.head = nn.GRU(width, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.state(x)[0][:, -1])
        return found


def test_inputs_count_where_a_single_layer_can_be_read() -> None:
    assert layers_of(Recurrent(7), torch.randn(2, 6, 7)) == FeatureLayers(("head",), (TEXTURE, INPUTS, "head"))
    wide = MOST_FEATURES // 6 + 1
    assert layers_of(Recurrent(wide), torch.randn(2, 6, wide)) == FeatureLayers(("head",), (TEXTURE, "head"))


def test_nothing_to_read() -> None:
    assert choose_layers(Bare().eval(), torch.randn(2, 4), "table") is None


def test_layers_by_name() -> None:
    model, x = mlp(4, 5, 6, 3).eval(), torch.randn(2, 4)
    assert named_layers(model, x, ("2", "4", "2")) == FeatureLayers(("2", "4"), ("2", "4"))
    with pytest.raises(
        ValueError, match=r"added_weights: found 'head', which is no such layer, expected .*'0', '2', '4'"
    ):
        named_layers(model, x, ("head",))
    with pytest.raises(ValueError, match="found 'twice', which is called several times"):
        named_layers(Odd().eval(), torch.randn(2, 6), ("twice",))


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


def test_what_is_read_is_what_the_layer_saw() -> None:
    model, x = Written().eval(), torch.randn(3, 1, 8, 8)
    (found,) = read_activations(model, ("conv",), x)
    seen = model.stem(x).flatten(2)
    expected = torch.cat([seen.mean(2), seen.std(2, correction=0)], dim=1)
    torch.testing.assert_close(found, expected)


def test_tokens_are_pooled_and_a_class_token_is_not() -> None:
    tokens, inputs = nn.Sequential(nn.Linear(5, 4)), torch.randn(3, 7, 5)
    (found,) = read_activations(tokens, ("0",), inputs)
    torch.testing.assert_close(found, inputs.mean(1))
    (found,) = read_activations(tokens, ("0",), inputs[:, 0])
    torch.testing.assert_close(found, inputs[:, 0])
    (found,) = read_activations(tokens, (INPUTS,), inputs)
    torch.testing.assert_close(found, inputs.flatten(1))


def test_texture_is_read_of_inputs_that_have_neighbours() -> None:
    conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))
    assert layers_of(conv, torch.randn(2, 1, 8, 8)).score[0] == TEXTURE
    assert TEXTURE not in layers_of(conv, torch.randn(2, 1, 8, 8)).link
    one_place = nn.Sequential(nn.Flatten(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    assert TEXTURE not in layers_of(one_place, torch.randn(2, 3, 1, 1)).score
