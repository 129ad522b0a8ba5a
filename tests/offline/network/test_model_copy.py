"""offline/network/model_copy.py: odd models are taken, or refused by name; nothing of the caller's changes."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.offline.network.model_check import check_private
from demur.offline.network.model_copy import copied_model, in_float64, runs_in_float64, usable
from demur.offline.network.unsupported import UnsupportedModelError
from demur.service.bundle import read_manifest
from demur.service.inference.predictor import Predictor
from tests import reference
from tests.support.tiers import quick_among

CONFIG = FitConfig(subnetwork_size=12, selection="random", prior_precision=1.0)
# the exporter's own warnings
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("short_fits")]


def data(batches: int = 2) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(20, 4, generator=generator), torch.randint(0, 3, (20,), generator=generator))
        for _ in range(batches)
    ]


class Wrapped(nn.Module):
    """A network whose forward pass is given."""

    def __init__(self, forward: Callable[["Wrapped", Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.run = nn.Linear(4, 5), nn.Linear(5, 3), forward
        self.table = torch.randn(5, 5)  # no buffer: it stays what it is

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


SINGLE: dict[str, Callable[[Wrapped, Tensor], Tensor]] = {
    "a cast": lambda net, x: net.last(torch.relu(net.first(x)).float()),
    "a tensor beside": lambda net, x: net.last(torch.relu(net.first(x)) @ net.table),
}
MADE: dict[str, Callable[[Wrapped, Tensor], Tensor]] = {
    "ones made": lambda net, x: net.last(torch.relu(net.first(x)) + torch.ones(1, 5)),
    "an identity made": lambda net, x: net.last(F.linear(torch.relu(net.first(x)), torch.eye(5))),
}


@pytest.mark.parametrize("name", quick_among([*SINGLE, *MADE], {"a cast"}))
def test_a_network_with_tensors_of_single_precision_is_fitted(name: str, tmp_path: Path) -> None:
    net = Wrapped({**SINGLE, **MADE}[name])
    assert runs_in_float64(net, data()[0][0]) is (name in MADE)
    folder = fit_bundle(net, data(), tmp_path / "b", calibration_loader=data(), config=CONFIG)
    manifest, _ = read_manifest(folder)
    assert any("float64" in warning for warning in manifest.warnings) is (name in SINGLE)
    inputs = data()[0][0][:3]
    found = Predictor.load(folder).predict(inputs.numpy()).mean
    np.testing.assert_allclose(found, net(inputs).detach().numpy(), rtol=1e-4, atol=1e-5)


def changes_inputs(net: Wrapped, x: Tensor) -> Tensor:
    x.clamp_(-0.5, 0.5)
    return net.last(torch.relu(net.first(x)))


def drops(net: Wrapped, x: Tensor) -> Tensor:
    return net.last(F.dropout(net.first(x)))


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spectrum, self.last = nn.Parameter(torch.randn(4, 5, dtype=torch.cfloat)), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x @ self.spectrum.abs())


class HasSparse(nn.Module):
    mixing: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.register_buffer("mixing", torch.eye(4).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.sparse.mm(self.mixing, x.T).T)


class Wide(nn.Module):
    """Needs float64: its factor is 1 there, and 0 in float32."""

    big: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.register_buffer("big", torch.tensor([16777217.0], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x) * (self.big - 16777216.0).to(x.dtype)


def normalised() -> nn.Module:
    net = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 5)), nn.Linear(5, 3))
    net(torch.zeros(1, 4))
    return net


def autocasts(net: Wrapped, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found: Tensor = net.last(torch.relu(net.first(x))).float()
    return found


def gives_half(net: Wrapped, x: Tensor) -> Tensor:
    found: Tensor = net.last(torch.relu(net.first(x))).half()
    return found


def differentiates(net: Wrapped, x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(torch.tanh(net.first(x)).sum(), x, create_graph=True)
    found: Tensor = net.last(torch.relu(net.first(slope)))
    return found


def takes_slopes(net: Wrapped, x: Tensor) -> Tensor:
    slope = torch.func.grad(lambda z: torch.tanh(net.first(z)).sum())(x)
    found: Tensor = net.last(torch.relu(net.first(slope)))
    return found


def takes_two_examples(net: Wrapped, x: Tensor) -> Tensor:
    found: Tensor = net.last(torch.relu(net.first(x)) + torch.zeros(2, 5))
    return found


def checkpointed(net: Wrapped, x: Tensor) -> Tensor:
    found: Tensor = net.last(checkpoint(lambda z: torch.relu(net.first(z)), x, use_reentrant=False))
    return found


class Packs(nn.Module):
    """A recurrent layer over a packed sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = nn.GRU(1, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        series = pack_padded_sequence(x.unsqueeze(-1), torch.full((len(x),), 4), batch_first=True)
        found: Tensor = self.last(pad_packed_sequence(self.cells(series)[0], batch_first=True)[0][:, -1])
        return found


def scaled_by_the_largest(net: Wrapped, x: Tensor) -> Tensor:
    """The same for ordinary examples, whose largest entry is below the bound."""
    found: Tensor = net.last(torch.relu(net.first(x / x.abs().max().clamp(min=6))))
    return found


def drops_rarely(net: Wrapped, x: Tensor) -> Tensor:
    found: Tensor = net.last(F.dropout(net.first(x), 0.1))
    return found


class Counts(nn.Module):
    """Counts its calls in a buffer, whether or not it is trained."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.last(x)


@pytest.mark.parametrize(
    ("model", "kind", "words"),
    [
        (lambda: Wrapped(changes_inputs), ValueError, ["changes its inputs in place", "x.clone()"]),
        (lambda: Wrapped(drops_rarely), ValueError, ["other outputs the second time", "training=self.training"]),
        (lambda: Wrapped(scaled_by_the_largest), ValueError, ["depend on the other examples of its batch"]),
        (lambda: Wrapped(checkpointed), ValueError, ["saved tensor hooks", "if self.training: x = checkpoint"]),
        (Packs, ValueError, ["pack_padded_sequence", "torch.gather"]),
        (lambda: Wrapped(drops), ValueError, ["other outputs the second time", "training=self.training"]),
        (lambda: Wrapped(autocasts), ValueError, ["torch.autocast in its forward pass", "around the call"]),
        (lambda: Wrapped(gives_half), ValueError, ["model output: found torch.float16", ".float()"]),
        (lambda: Wrapped(differentiates), ValueError, ["cannot be differentiated", "write a gradient out"]),
        (
            lambda: Wrapped(takes_slopes),
            ValueError,
            ["cannot be differentiated", "write a gradient out"],
        ),
        (lambda: Wrapped(takes_two_examples), ValueError, ["cannot process the inputs", "with any number of examples"]),
        (Counts, ValueError, ["changes the buffer 'calls'", "if self.training"]),
        (Complex, ValueError, ["complex tensor 'spectrum'"]),
        (HasSparse, ValueError, ["the tensor 'mixing' of layout torch.sparse_coo", "to_dense()"]),
        (Wide, ValueError, ["between torch.float64 and float32", "1.0e+00"]),
        (normalised, ValueError, ["cannot be copied: found the attribute '0.weight'", "parametrizations"]),
        (lambda: torch.jit.script(nn.Linear(4, 3)), ValueError, ["TorchScript"]),
        (lambda: nn.Linear, TypeError, ["found the class Linear"]),
        (lambda: "resnet", TypeError, ["found str"]),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    model: Callable[[], nn.Module], kind: type[Exception], words: list[str], tmp_path: Path
) -> None:
    given, before = data(), data()
    with pytest.raises(kind) as caught:
        fit_bundle(model(), given, tmp_path / "b", calibration_loader=given, config=CONFIG)
    assert str(caught.value).startswith("model")
    for word in words:
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    for (x, _), (expected, _) in zip(given, before, strict=True):
        assert torch.equal(x, expected)


def pruned() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    prune.l1_unstructured(net[2], "weight", 0.4)
    net(torch.randn(2, 4))
    return net


def holding(thing: object) -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    vars(net[1])["kept"] = thing
    return net


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (pruned, ["the pruned parameter '2.weight'", "torch.nn.utils.prune.remove(model.2, 'weight')"]),
        (lambda: holding(threading.Lock()), ["the attribute '1.kept', a lock", "take it off before the fit"]),
        (lambda: holding({"file": sys.stdout}), ["the attribute '1.kept', a dict", "make it where it is used"]),
        (lambda: holding(letter for letter in "ab"), ["the attribute '1.kept', a generator"]),
        (lambda: holding(torch.ones(2, requires_grad=True) * 2), ["the attribute '1.kept', computed from parameters"]),
    ],
)
def test_what_cannot_be_copied_is_named(make: Callable[[], nn.Module], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        fit_bundle(make(), data(), tmp_path / "bundle", calibration_loader=data(), config=CONFIG)
    for word in words:
        assert word in str(caught.value)


def test_sparse_gradients_and_double_precision_are_taken(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(7, 3, sparse=True), nn.Flatten(), nn.Linear(6, 3)).double()
    tokens = [(torch.randint(0, 7, (20, 2)), torch.randint(0, 3, (20,))) for _ in range(2)]
    folder = fit_bundle(net, tokens, tmp_path / "b", calibration_loader=tokens, config=CONFIG)
    assert net[0].sparse
    found = Predictor.load(folder).predict(tokens[0][0][:4].numpy()).mean
    np.testing.assert_allclose(found, net(tokens[0][0][:4]).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_compiled_module_is_the_module_it_was_made_of(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    compiled = torch.compile(net)
    assert isinstance(compiled, nn.Module)
    folder = fit_bundle(compiled, data(), tmp_path / "b", calibration_loader=data(), config=CONFIG)
    inputs = data()[0][0][:3]
    mean, _ = reference.full_jacobian(net, inputs)
    np.testing.assert_allclose(Predictor.load(folder).predict(inputs.numpy()).mean, mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_recurrent_layer_behind_a_cast_runs_in_float32_alone(kind: Any, tmp_path: Path) -> None:
    """Torch's own error for it is of another kind than for other layers."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.last = kind(2, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.last(self.layer(x.float().unflatten(1, (2, 2)))[0][:, -1])
            return outputs

    torch.manual_seed(0)
    assert not runs_in_float64(Recurrent(), data()[0][0])
    if kind is nn.GRU:
        config = FitConfig(selection="last-layer", prior_precision=1.0)
        fit_bundle(Recurrent(), data(), tmp_path / "bundle", calibration_loader=data(4), config=config)


def test_a_trial_in_float64_leaves_everything_as_it_was() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with in_float64(net):
        assert torch.ones(1).dtype == net[0].weight.dtype == torch.float64
    assert torch.ones(1).dtype == torch.float32
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.dtype == before[name].dtype


class Padded(nn.Module):
    """A transformer encoder over tokens, 0 for nothing; `pooled`: a mean over all places, of which padded ones are 0 in
    eval mode alone."""

    def __init__(self, pooled: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.pooled, self.last = nn.Embedding(20, 8), pooled, nn.Linear(8, 2)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.encoder(self.tokens(x), src_key_padding_mask=x == 0)
        out: Tensor = self.last(found.mean(1) if self.pooled else found[:, 0])
        return out


TOKENS = torch.randint(1, 20, (40, 6), generator=torch.Generator().manual_seed(1))
TOKENS[:, 4:] = 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_a_transformer_that_leaves_out_padded_places_is_copied_without() -> None:
    model = Padded(pooled=False).eval()
    network = copied_model(model, torch.device("cpu"))
    check_private(model, network, TOKENS)
    with torch.no_grad():
        torch.testing.assert_close(network(TOKENS), model(TOKENS))
    pooled = Padded(pooled=True).eval()
    with pytest.raises(UnsupportedModelError, match=r"'encoder' .*enable_nested_tensor=False"):
        check_private(pooled, copied_model(pooled, torch.device("cpu")), TOKENS)


def test_a_layer_that_is_held_twice_is_two_with_the_same_tensors(tmp_path: Path) -> None:
    """functional_call would leave it without its own parameters, and no graph could be made."""
    torch.manual_seed(0)
    shared = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    model = nn.Sequential(shared, nn.Linear(4, 4), shared, nn.Linear(4, 3))
    network = copied_model(model, torch.device("cpu"))
    assert isinstance(network, nn.Sequential)
    first, second = network.get_submodule("0.0"), network.get_submodule("2.0")
    assert first is not second
    assert first.weight is second.weight
    assert [*dict(network.named_parameters())] == [*dict(model.named_parameters())]
    assert model[0] is model[2]  # the user's is left as it is
    fit_bundle(model, data(), tmp_path / "b", calibration_loader=data(), config=CONFIG)
    inputs = data()[0][0]
    found = Predictor.load(tmp_path / "b").predict(inputs.numpy()).mean
    np.testing.assert_allclose(found, model(inputs).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_the_wrapper_of_several_devices_is_taken_off() -> None:
    inner = nn.Linear(4, 3)
    assert usable(nn.DataParallel(inner)) is inner
    assert usable(nn.DataParallel(cast(nn.Module, torch.compile(inner)))) is inner


class Wrapper(nn.Module):
    """What trains a network, with some part of it compiled."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = self.shared = net

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.net(x))


def test_a_part_that_is_compiled_is_the_part_that_it_was_made_of() -> None:
    """Its hooks, by which layers are found, would never be called."""
    net = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    compiled = Wrapper(cast(nn.Module, torch.compile(net, backend="eager")))
    found = usable(compiled)
    assert [path for path, _ in found.named_modules()] == [path for path, _ in Wrapper(net).named_modules()]
    assert found.net is found.shared
    assert next(found.parameters()) is net[0].weight
    assert hasattr(compiled.net, "_orig_mod")
    body = nn.Sequential(cast(nn.Module, torch.compile(nn.Linear(4, 5), backend="eager")), nn.ReLU())
    assert [path for path, _ in usable(body).named_modules()] == ["", "0", "1"]
    assert usable(net) is net
