"""fit_bundle refuses what cannot be used, before the export, and takes what only looks odd."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import demur.offline.publish.exporter
from demur.offline import fit_bundle
from demur.offline.export.graph import export_jacobian
from demur.offline.jacobian.mixtures import EveryOutput
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.distributed import DistributedContext
from demur.service.bundle import ImagePreprocessing, InputSpec
from tests.support.small_fit import CONFIG, Batches, batches, captured, network, skip_export, state


def broken(value: float) -> nn.Module:
    model = network()
    model.get_buffer("1.running_var")[2] = value
    return model


def spoiled(value: float) -> Batches:
    return [*batches(), (torch.full((2, 4), value), torch.tensor([0, 1]))]


class Returning(nn.Module):
    """A linear network whose output is packed by `pack`."""

    def __init__(self, pack: Callable[[torch.Tensor], object], outputs: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last, self.pack = nn.Linear(4, outputs), pack

    def forward(self, x: torch.Tensor) -> object:
        return self.pack(self.last(x))


def other(**fields: Any) -> dict[str, Any]:
    return {"config": CONFIG.model_copy(update=fields)}


EMPTY = (torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
REGRESSION = other(likelihood="regression")
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no batch": ({"train": []}, ValueError, "train_loader: found no example"),
    "empty batches": ({"train": [EMPTY, EMPTY]}, ValueError, "train_loader: found no example"),
    "iterator": ({"train": iter(batches())}, TypeError, "train_loader: found an iterator .* only once"),
    "number": ({"held_out": 3}, TypeError, "calibration_loader: found int, expected an iterable"),
    "calibration iterator": (
        {"held_out": zip(*batches(), strict=False)},
        TypeError,
        "calibration_loader: .* only once",
    ),
    "NaN in data": ({"train": spoiled(math.nan)}, ValueError, "train_loader, batch 3: found NaN or infinity"),
    "NaN held out": ({"held_out": spoiled(math.nan)}, ValueError, "calibration_loader, batch 3: found NaN"),
    "NaN in a buffer": ({"model": broken(math.nan)}, ValueError, "model: found NaN or infinity in '1.running_var'"),
    "infinite weight": ({"model": broken(math.inf)}, ValueError, "model: found NaN or infinity in '1.running_var'"),
    "frozen": ({"model": network().requires_grad_(False)}, ValueError, "found no trainable parameter"),
    "image output": (
        {"model": nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2)))},
        ValueError,
        r"model output: found \(2, 2, 2\), expected",
    ),
    "no output": (
        {"model": Returning(lambda y: {"a": y, "b": y})},
        ValueError,
        "model output: found dict of 'a', 'b', expected",
    ),
    "one logit, more classes": (
        {"model": nn.Linear(4, 1), "train": batches(classes=3)},
        ValueError,
        "targets: found class numbers from 0 to 2, expected 0 to 1 for a model with one logit or 2 outputs",
    ),
    "sigmoid": (
        {"model": nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0))},
        ValueError,
        r"model: found an output that is a probability \(the last operation is a sigmoid\), expected a logit",
    ),
    "values for classes": (
        {"model": nn.Linear(4, 1), "train": [(torch.ones(8, 4), torch.linspace(0, 1, 8))]},
        ValueError,
        "targets: found dtype torch.float32, expected integer class numbers; .* give likelihood='regression'",
    ),
    "targets": ({"train": batches(classes=3)}, ValueError, "targets: found class numbers from 0 to 2"),
    "later targets": ({"train": batches() + batches(classes=3)}, ValueError, "targets: found class numbers"),
    "calibration targets": ({"held_out": batches(classes=3)}, ValueError, "targets: found class numbers"),
    "class targets": (REGRESSION, ValueError, r"targets: found shape \(8,\), expected \(8, 2\)"),
    "later target shape": (
        {
            "model": nn.Linear(4, 3),
            "train": [(torch.ones(8, 4), torch.zeros(8, width)) for width in (3, 2)],
            "held_out": [(torch.ones(20, 4), torch.zeros(20, 3))],
            **other(likelihood="regression", selection="wasserstein-swag"),
        },
        ValueError,
        r"targets: found shape \(8, 2\), expected \(8, 3\)",
    ),
    "S > D": (other(subnetwork_size=53), ValueError, "subnetwork_size: found 53, expected at most .* 52 trainable"),
    "few calibration": ({"held_out": batches(8)}, ValueError, "found 4 examples to set the threshold .* at least 9 "),
    "few to share": (
        {"held_out": batches(16), **other(prior_precision="gridsearch")},
        ValueError,
        "found 8 examples to set the threshold .* at least 9 .*18 in all, half of which tune",
    ),
    "calibration shape": (
        {"held_out": batches(features=5)},
        ValueError,
        r"calibration_loader: found inputs of shape \(5,\).*, expected \(4,\).* as in train_loader",
    ),
    "calibration dtype": (
        {"held_out": [(torch.zeros(20, 4, dtype=torch.int64), torch.arange(20) % 2)]},
        ValueError,
        "calibration_loader: found inputs of .*int64, expected .*float32",
    ),
    "option": (other(selection_options={"snapshots": 3}), ValueError, "found 'snapshots', expected live_only"),
    "class names": ({"class_names": ["a", "b", "c"]}, ValueError, "class_names: found .*, expected .*2 names"),
    "one string": ({"class_names": "ab"}, ValueError, "class_names: found str, expected a list of names"),
    "a tuple for a spec": ({"input_spec": (4,)}, TypeError, "input_spec: found tuple, expected an InputSpec"),
    "input dtype": (
        {"input_spec": InputSpec(shape=(4,), dtype="float16")},  # type: ignore[arg-type]
        ValueError,
        "input_spec: dtype: found 'float16', expected 'float32' or 'int64'",
    ),
    "image": (
        {"input_spec": InputSpec(shape=(1, 2, 2), image=ImagePreprocessing(resize=1))},  # type: ignore[arg-type]
        ValueError,
        "input_spec: image.resize: found 1, expected true or false",
    ),
    "device": (other(device="cuda:99"), ValueError, "device: found 'cuda:99'"),
}


@pytest.mark.parametrize(("given", "error", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_refused_before_the_export(
    given: dict[str, Any], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        demur.offline.publish.exporter, "export_variance", lambda *_: pytest.fail("the export was reached")
    )
    model = given.get("model", network())
    before = state(model)
    with pytest.raises(error, match=message):
        fit_bundle(
            model,
            given.get("train", batches()),
            tmp_path / "bundle",
            calibration_loader=given.get("held_out", batches(seed=1)),
            config=given.get("config", CONFIG),
            class_names=given.get("class_names"),
            input_spec=given.get("input_spec"),
        )
    assert str(state(model)) == str(before)  # as text: NaN equals itself
    assert list(tmp_path.iterdir()) == []


def test_probabilities_are_not_taken_for_logits(tmp_path: Path) -> None:
    model = nn.Sequential(network(), nn.Softmax(1))
    with pytest.raises(ValueError, match=r"found outputs that are probabilities .* expected logits"):
        fit_bundle(model, batches(), tmp_path / "out", calibration_loader=batches(seed=1), config=CONFIG)
    assert list(tmp_path.iterdir()) == []


def test_log_probabilities_are_not_taken_for_logits(tmp_path: Path) -> None:
    model = nn.Sequential(network(), nn.LogSoftmax(1))
    with pytest.raises(ValueError, match=r"found outputs that are log-probabilities .* leave out the last log_softmax"):
        fit_bundle(model, batches(), tmp_path / "out", calibration_loader=batches(seed=1), config=CONFIG)
    assert list(tmp_path.iterdir()) == []


def test_a_regression_that_fits_exactly_reports_no_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(4, 2)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    data = [(inputs, torch.zeros(len(inputs), 2)) for inputs, _ in batches()]
    config = CONFIG.model_copy(update={"likelihood": "regression", "sigma_noise": 0.1})
    metrics = captured(monkeypatch, model, data, data, config).said.metrics
    assert "train_accuracy" not in metrics
    assert metrics["train_rmse"] == 0


def test_one_calibration_example_cannot_both_tune_and_set_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a rate of one half, one example is enough for the threshold; none is left to tune with."""
    config = CONFIG.model_copy(update={"prior_precision": "gridsearch", "false_reject_rate": 0.5})
    skip_export(monkeypatch)
    with pytest.raises(ValueError, match=r"calibration_loader: found .*, expected at least .*2 in all"):
        fit_bundle(network(), batches(), "never-written", calibration_loader=batches(1), config=config)


@pytest.mark.parametrize("features", [3, 11])
def test_no_size_of_the_input_is_taken_for_the_batch(features: int) -> None:
    """Three as the channels of a colour image; eleven examples are what the export traces with at first."""
    model, example, indices = nn.Linear(features, 2), torch.ones(1, features), torch.tensor([0, 7])
    jacobian = make_jacobian(private_copy(model, torch.device("cpu")), WeightLayout.of(model), indices, example)
    assert export_jacobian(jacobian, example, EveryOutput(2))[0]


def test_a_mapping_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"config: found dict, expected a FitConfig, such as FitConfig\(seed=1\)"):
        fit_bundle(
            torch.nn.Linear(4, 3),
            [],
            tmp_path / "x",
            calibration_loader=[],
            config={"seed": 1},  # type: ignore[arg-type]
        )


def test_a_null_byte_in_a_path_is_named() -> None:
    with pytest.raises(ValueError, match=r"out: found .*, expected a path without null bytes"):
        fit_bundle(torch.nn.Linear(4, 3), [], "a\0b", calibration_loader=[])


def test_processes_with_different_networks_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where each trains its own without a seed: the curvature would be a sum over different ones."""
    monkeypatch.setattr(DistributedContext, "broadcast_json", lambda _, value: {**value, "weights": "of another"})
    with pytest.raises(ValueError, match="expected the same weights and configuration in every process of torchrun"):
        fit_bundle(network(), batches(), tmp_path / "b", calibration_loader=batches(120), config=CONFIG)
