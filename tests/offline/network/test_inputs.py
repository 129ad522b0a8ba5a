"""Models with several inputs: how they are called, packed, fitted and served, against one input of the same network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from demur.offline import FitConfig, InputSpec, fit_bundle
from demur.offline.data.given import given_data
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.network.inputs import InputForm, input_form, named_inputs, packed
from demur.service.bundle import InputPart
from demur.service.inference.predictor import Predictor
from tests.support.tiers import quick_among

pytestmark = pytest.mark.usefixtures("short_fits")

KINDS = ("image", "token", "known")


class Body(nn.Module):
    """An image, a token and two truth values, which say whether the token counts and the image is inverted."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.embedding = nn.Conv2d(1, 3, 3), nn.Embedding(7, 4)
        self.head = nn.Sequential(nn.Linear(12 + 4 + 1, 8), nn.Tanh(), nn.Linear(8, 3))

    def of(self, image: Tensor, token: Tensor, known: Tensor) -> Tensor:
        seen = torch.relu(self.conv(image)).flatten(1)
        word = self.embedding(token) * known[:, :1]
        found: Tensor = self.head(torch.cat([seen, word, known[:, 1:].to(seen.dtype)], dim=1))
        return found


class ByName(Body):
    def forward(self, token: Tensor, known: Tensor, image: Tensor) -> Tensor:
        return self.of(image, token, known)


class InOrder(Body):
    def forward(self, image: Tensor, token: Tensor, known: Tensor) -> Tensor:
        return self.of(image, token, known)


class OneMapping(Body):
    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.of(batch["image"], batch["token"], batch["known"])


class OneTuple(Body):
    def forward(self, batch: tuple[Tensor, ...]) -> Tensor:
        return self.of(*batch)


class Packed(Body):
    """The same with one input, the entries in the order of the names."""

    def forward(self, x: Tensor) -> Tensor:
        return self.of(x[:, :16].reshape(-1, 1, 4, 4), x[:, 18].long(), x[:, 16:18].bool())


def parts(count: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "image": torch.randn(count, 1, 4, 4, generator=generator),
        "token": torch.randint(0, 7, (count,), generator=generator),
        "known": torch.rand(count, 2, generator=generator) < 0.7,
    }


def classes(named: dict[str, Tensor]) -> Tensor:
    return (named["token"] + named["image"].mean((1, 2, 3)).gt(0) + named["known"][:, 0]) % 3


def mapping(count: int, seed: int) -> tuple[Any, Tensor]:
    named = parts(count, seed)
    return named, classes(named)


def in_order(count: int, seed: int) -> tuple[Any, Tensor]:
    named = parts(count, seed)
    return tuple(named.values()), classes(named)


FORMS: dict[str, tuple[type[Body], Callable[[int, int], tuple[Any, Tensor]]]] = {
    "by name": (ByName, mapping),
    "in order": (InOrder, in_order),
    "mapping": (OneMapping, mapping),
    "tuple": (OneTuple, in_order),
}
CONFIG = FitConfig(false_reject_rate=0.1)


def test_what_is_several() -> None:
    x = torch.ones(2, 3)
    for several, names in (((x, x), ["0", "1"]), ([x, x.numpy()], ["0", "1"]), ({"b": x, "a": x}, ["a", "b"])):
        found = named_inputs(several, "data")
        assert found is not None
        assert list(found) == names
    for one in (x, ([1.0], x), ()):
        assert named_inputs(one, "data") is None
        assert packed(one, "data") is one


@pytest.mark.parametrize("form", FORMS)
def test_a_packed_batch_is_unpacked_as_the_model_takes_it(form: str) -> None:
    kind, data = FORMS[form]
    model, (inputs, _) = kind().eval(), data(5, 0)
    found = input_form(model, inputs)
    assert found.call == form
    args, kwargs = found.arguments(packed(inputs, "data"))
    with torch.no_grad():
        assert torch.equal(model(*args, **kwargs), model.of(**parts(5, 0)))
    network = kind().eval()
    found.install(network)
    with torch.no_grad():
        assert torch.equal(network(packed(inputs, "data")), model.of(**parts(5, 0)))


def test_a_hook_of_the_users_gets_what_the_model_takes() -> None:
    data = in_order(5, 0)[0]
    network, plain = InOrder().eval(), InOrder().eval()
    plain.load_state_dict(network.state_dict())
    for model in (network, plain):
        model.register_forward_pre_hook(lambda _, given: (given[0] / 255, *given[1:]))
    input_form(network, data).install(network)
    with torch.no_grad():
        assert torch.equal(network(packed(data, "data")), plain(*data))


def test_the_names_and_types_of_the_parts() -> None:
    assert input_form(Packed(), torch.ones(2, 19)) == InputForm()
    known, image, token = (
        InputPart("known", (2,), "bool"),
        InputPart("image", (1, 4, 4)),
        InputPart("token", (), "int64"),
    )
    assert input_form(ByName(), mapping(2, 0)[0]).parts == (image, known, token)
    assert input_form(InOrder(), in_order(2, 0)[0]).parts == (image, token, known)
    unnamed = input_form(OneTuple(), in_order(2, 0)[0]).parts
    assert unnamed is not None
    assert [part.name for part in unnamed] == ["input_0", "input_1", "input_2"]
    assert input_form(ByName(), mapping(2, 0)[0]).lines() == [
        "the model takes 3 inputs: image float32 (1, 4, 4), known bool (2,), token int64 ()"
    ]


def test_what_cannot_be_packed() -> None:
    with pytest.raises(ValueError, match="input 'a': found whole numbers up to 16777217, expected at most 16777216"):
        packed({"a": torch.tensor([2**24 + 1]), "b": torch.ones(1)}, "data")
    with pytest.raises(ValueError, match=r"data: found inputs of \[2, 3\] examples, expected as many of each"):
        packed((torch.ones(2), torch.ones(3)), "data")
    frame = pd.DataFrame({"a": [1.0]})
    with pytest.raises(ValueError, match="data, input '1': found a data frame, expected an array"):
        packed((torch.ones(1), frame), "data")
    with pytest.raises(ValueError, match="train_loader, input 'b': found a data frame, expected an array"):
        given_data(({"a": torch.ones(1), "b": frame}, torch.ones(1)), "train_loader")
    with pytest.raises(ValueError, match=r"data, input '0': found dtype torch\.complex64"):
        packed((torch.ones(2) * 1j, torch.ones(2)), "data")


class Examples(Dataset[Any]):
    def __init__(self, count: int, seed: int) -> None:
        self.named, self.classes = mapping(count, seed)

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, place: int) -> tuple[dict[str, Tensor], Tensor]:
        return {name: values[place] for name, values in self.named.items()}, self.classes[place]


def test_every_form_is_fitted_and_served_like_one_input(tmp_path: Path) -> None:
    """By defaults; the oracle is the same network with one input, whose path through the fit other tests check."""
    one = [(packed(x, "data"), y) for x, y in (mapping(200, 0), mapping(120, 1))]
    expected = Predictor.load(fit_bundle(Packed(), one[0], tmp_path / "one", calibration_loader=one[1], config=CONFIG))
    named = {name: values.numpy() for name, values in parts(30, 2).items()}
    truth = expected.predict(packed(named, "data").numpy())
    held_out = DataLoader(Examples(120, 1), batch_size=50)
    path = fit_bundle(ByName(), mapping(200, 0), tmp_path / "named", calibration_loader=held_out, config=CONFIG)
    predictor = Predictor.load(path)
    assert predictor.manifest.input.parts == input_form(ByName(), mapping(2, 0)[0]).parts
    found = predictor.predict(named)
    np.testing.assert_allclose(found.mean, truth.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.variance, truth.variance, rtol=1e-3)
    np.testing.assert_array_equal(found.rejected, truth.rejected)
    assert predictor.predict({**named, "image": 50 * named["image"]}).rejected.mean() > 0.9
    figures = evaluate(predictor, mapping(60, 4))
    assert figures.examples == 60


@pytest.mark.parametrize("form", quick_among(["in order", "mapping", "tuple"], {"mapping"}))
@pytest.mark.usefixtures("without_export")
def test_other_forms_are_fitted(form: str, tmp_path: Path) -> None:
    kind, data = FORMS[form]
    said: list[str] = []
    path = fit_bundle(
        kind(),
        data(200, 0),
        tmp_path / "bundle",
        calibration_loader=[data(60, 1), data(60, 3)],
        config=CONFIG,
        say=said.append,
    )
    assert path.exists()
    assert said[0].startswith("the model takes 3 inputs: ")


def test_other_inputs_than_in_the_training_data_are_refused(tmp_path: Path) -> None:
    (inputs, y), swapped = in_order(60, 1), {"image": 2, "token": 0, "known": 1}
    other = tuple(inputs[place] for place in swapped.values())
    with pytest.raises(ValueError, match=r"calibration_loader, batch 0: found inputs of .* as in the training data"):
        fit_bundle(InOrder(), in_order(60, 0), tmp_path / "b", calibration_loader=(other, y), config=CONFIG)
    named, y = mapping(60, 1)
    renamed = {name.replace("known", "seen"): values for name, values in named.items()}
    with pytest.raises(ValueError, match=r"found inputs of .*'seen'.*, expected .*'known'.* as in the"):
        fit_bundle(ByName(), mapping(60, 0), tmp_path / "b", calibration_loader=(renamed, y), config=CONFIG)


def test_an_input_spec_has_no_place_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="input_spec: found one for a model with 3 inputs, expected None"):
        fit_bundle(
            ByName(),
            mapping(60, 0),
            tmp_path / "b",
            calibration_loader=mapping(60, 1),
            input_spec=InputSpec(shape=(19,)),
        )
