"""fit_bundle refuses what cannot be used, changes nothing that is the user's, and leaves nothing behind."""

import errno
import math
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import offline.fit
import offline.job
import offline.laplace.calibration
import offline.laplace.inference
import offline.publish.bundle
import offline.selection.select
import service.bundle
from offline import FitConfig, fit_bundle
from offline.export.graph import export_onnx
from offline.jacobian.plan import make_jacobian
from offline.network.model_copy import private_copy
from offline.network.weights import WeightLayout
from service.bundle import BundleError, ImagePreprocessing, InputSpec, read_bundle
from service.format.files import write_file
from tests.support.networks import hooks_of

CONFIG = FitConfig(
    subnetwork_size=6, selection="random", prior_precision=1.0, false_reject_rate=0.1, device="cpu", name="tiny"
)
Batches = list[tuple[Tensor, Tensor]]


class Stop(Exception):
    """Raised by a stage that a test replaced."""


def network() -> nn.Module:
    """In train mode, with dropout, BatchNorm, a frozen tensor, a gradient and hooks of the user's own."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 5), nn.Linear(5, 2)
    ).train()
    model.get_buffer("1.running_mean").copy_(torch.randn(5))
    model[3].eval()
    model[4].weight.requires_grad_(False)
    model[0].weight.grad = torch.ones(5, 4)
    model[0].register_forward_hook(lambda *_: None)
    model[5].register_forward_pre_hook(lambda *_: None)
    return model


def batches(count: int = 20, seed: int = 0, features: int = 4, classes: int = 2) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, features, generator=generator)
    targets = torch.randint(0, classes, (count,), generator=generator)
    return list(zip(inputs.split(8), targets.split(8), strict=True))


def state(model: nn.Module) -> dict[str, Any]:
    """Everything of a model and of the random number generators that a fit could disturb, comparable with ==."""
    parameters = dict(model.named_parameters())
    modules = list(model.modules())
    return {
        "tensors": {name: (t.dtype, t.tolist()) for name, t in model.state_dict().items()},
        "identity": [id(p) for p in parameters.values()],
        "requires_grad": [p.requires_grad for p in parameters.values()],
        "grad": {name: None if p.grad is None else p.grad.tolist() for name, p in parameters.items()},
        "training": [m.training for m in modules],
        "hooks": hooks_of(model),
        "attributes": [sorted(vars(m)) for m in modules],
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(np.random.get_state()),
        "python": random.getstate(),
        "grad mode": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
    }


def skip_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what stands beside the export is tried here."""
    monkeypatch.setattr(offline.fit, "check_whole_way", lambda *_: None)
    monkeypatch.setattr(offline.publish.bundle, "export_onnx", lambda *_: (b"graph", 18))


def captured(
    monkeypatch: pytest.MonkeyPatch, model: nn.Module, train: Any, held_out: Batches, config: FitConfig
) -> dict[str, Any]:
    """What the stages hand to `make_manifest`; the fit stops there."""
    found: dict[str, Any] = {}

    def make_manifest(*_: object, **fields: Any) -> None:
        found.update(fields)
        raise Stop

    skip_export(monkeypatch)
    monkeypatch.setattr(offline.publish.bundle, "make_manifest", make_manifest)
    with pytest.raises(Stop):
        fit_bundle(model, train, "never-written", calibration_loader=held_out, config=config)
    return found


# --------------------------------------------------------------------------- nothing of the user's changes


def test_success_changes_nothing_of_the_users_and_records_dropped_examples(tmp_path: Path) -> None:
    inputs, targets = (torch.cat(parts) for parts in zip(*batches(23), strict=True))
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=8, shuffle=True, drop_last=True)
    model = network()
    before = state(model)
    path = fit_bundle(model, loader, tmp_path / "new" / "bundle", calibration_loader=batches(seed=1), config=CONFIG)
    assert state(model) == before
    manifest = read_bundle(path).manifest
    assert manifest.metrics["train_examples"] == 16
    warning = next(text for text in manifest.warnings if "dataset" in text)
    assert "train_loader gave 16 examples, its dataset has 23 (drop_last" in warning
    assert [p.name for p in path.parent.iterdir()] == ["bundle"]


STAGES = {
    "copied_model": offline.job,
    "check_input_spec": offline.fit,
    "collect_held_out": offline.fit,
    "select": offline.selection.select,
    "make_jacobian": offline.job,
    "accumulate_ggn": offline.fit,
    "sweep_prior": offline.laplace.inference,
    "factor": offline.laplace.inference,
    "predict_held_out": offline.laplace.calibration,
    "fit_temperature": offline.laplace.calibration,
    "export_onnx": offline.publish.bundle,
    "make_manifest": offline.publish.bundle,
    "seal_bundle": offline.publish.bundle,
    "plain_jacobian": offline.publish.bundle,
    "verify": offline.publish.bundle,
    "report_html": offline.publish.bundle,
    "reseal_manifest": offline.publish.bundle,
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_failing_stage_changes_nothing_and_leaves_nothing_behind(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise Stop

    skip_export(monkeypatch)
    if stage in ("reseal_manifest", "report_html"):
        monkeypatch.setattr(offline.publish.bundle, "verify", lambda *_: None)
    monkeypatch.setattr(STAGES[stage], stage, fails)
    config = CONFIG.model_copy(update={"prior_precision": "gridsearch", "temperature": "fit"})
    model = network()
    before = state(model)
    with pytest.raises(Stop):
        fit_bundle(model, batches(), tmp_path / "bundle", calibration_loader=batches(seed=1), config=config)
    assert state(model) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("selection", ["wasserstein-swag", "wasserstein-laplace", "last-layer"])
def test_an_interruption_while_choosing_changes_nothing(selection: str) -> None:
    """The training data fail in the second pass over them."""
    model = network()
    before = state(model)

    class Broken(list[Any]):
        passes = 0

        def __iter__(self) -> Any:
            self.passes += 1
            if self.passes > 1:
                raise KeyboardInterrupt
            return super().__iter__()

    config = CONFIG.model_copy(update={"selection": selection, "subnetwork_size": 12})
    with pytest.raises(KeyboardInterrupt):
        fit_bundle(model, Broken(batches()), "never-written", calibration_loader=batches(seed=1), config=config)
    assert state(model) == before


def test_the_seed_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a loader that shuffles by the global generator."""
    inputs, targets = (torch.cat(parts) for parts in zip(*batches(40), strict=True))
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)
    options = {"selection": "wasserstein-swag", "selection_options": {"snapshots": 2}, "subnetwork_size": 20}
    chosen = []
    for seed, noise in ((0, 1), (0, 2), (5, 1)):
        torch.manual_seed(noise)
        config = CONFIG.model_copy(update={**options, "seed": seed})
        chosen.append(captured(monkeypatch, network(), loader, batches(seed=1), config)["selection"].indices.tolist())
    assert chosen[0] == chosen[1] != chosen[2]


# --------------------------------------------------------------------------- what cannot be used


def broken(value: float) -> nn.Module:
    model = network()
    model.get_buffer("1.running_var")[2] = value
    return model


def spoiled(value: float) -> Batches:
    return [*batches(), (torch.full((2, 4), value), torch.tensor([0, 1]))]


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
    "flat output": (
        {"model": nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))},
        ValueError,
        r"model output: found \(2,\), expected a tensor of shape \(2, outputs\)",
    ),
    "image output": (
        {"model": nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2)))},
        ValueError,
        r"model output: found \(2, 2, 2\), expected",
    ),
    "two outputs": ({"model": nn.LSTM(4, 2)}, ValueError, "model output: found tuple, expected a tensor"),
    "one class": ({"model": nn.Linear(4, 1)}, ValueError, "found 1 output, expected at least 2 for classification"),
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
    "few calibration": ({"held_out": batches(8)}, ValueError, "found 8 examples to set the threshold .* at least 9 "),
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
    "one string": ({"class_names": "ab"}, ValueError, "class_names: found the string .ab., expected a list of 2 names"),
    "input dtype": (
        {"input_spec": InputSpec(shape=(4,), dtype="float16")},  # type: ignore[arg-type]
        ValueError,
        "input_spec: dtype: found 'float16', expected 'float32' or 'int64'",
    ),
    "image": (
        {"input_spec": InputSpec(shape=(1, 2, 2), image=ImagePreprocessing(resize=1))},  # type: ignore[arg-type]
        ValueError,
        "input_spec: image.resize: found 1, expected a valid boolean",
    ),
    "device": (other(device="cuda:99"), ValueError, "device: found 'cuda:99'"),
}


@pytest.mark.parametrize(("given", "error", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_refused_before_the_export(
    given: dict[str, Any], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline.publish.bundle, "export_onnx", lambda *_: pytest.fail("the export was reached"))
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


# --------------------------------------------------------------------------- destination


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def file(path: Path) -> None:
    path.write_text("precious")


def link(path: Path) -> None:
    path.symlink_to(path.parent, target_is_directory=True)


def folder(path: Path) -> None:
    path.mkdir()
    file(path / "thesis.txt")


@pytest.mark.parametrize("make", [file, link, folder])
def test_a_destination_that_is_no_bundle_is_refused_before_any_work(tmp_path: Path, make: Callable[..., None]) -> None:
    make(tmp_path / "out")
    with pytest.raises(BundleError, match=r"out: exists and is not .*choose another destination"):
        fit_bundle(network(), [], tmp_path / "out", calibration_loader=[], config=CONFIG)
    assert list(contents(tmp_path).values()) == [] if make is link else ["precious"]


@pytest.mark.parametrize("written", [0, 1, 3])
def test_a_full_disk_leaves_the_old_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    out = tmp_path / "bundle"
    out.mkdir()
    for name in ("manifest.json", "model.onnx", "posterior.safetensors", "calibration.safetensors"):
        (out / name).write_text(f"old {name}")
    before = contents(tmp_path)
    skip_export(monkeypatch)
    calls: list[Path] = []

    def full(path: Path, data: bytes) -> None:
        calls.append(path)
        if len(calls) > written:
            path.write_bytes(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write_file(path, data)

    monkeypatch.setattr(service.bundle, "write_file", full)
    with pytest.raises(BundleError, match=r"bundle: could not be written \(No space left on device\) .*free some"):
        fit_bundle(network(), batches(), out, calibration_loader=batches(seed=1), config=CONFIG)
    assert len(calls) == written + 1
    assert contents(tmp_path) == before


def test_a_destination_that_cannot_be_written_is_known_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(BundleError, match=r"out: cannot be written \(Read-only file system\) .*make .* writable"):
        fit_bundle(network(), [], tmp_path / "new" / "out", calibration_loader=[], config=CONFIG)


def test_probabilities_are_not_taken_for_logits(tmp_path: Path) -> None:
    model = nn.Sequential(network(), nn.Softmax(1))
    with pytest.raises(ValueError, match=r"found outputs that are probabilities .* expected logits"):
        fit_bundle(model, batches(), tmp_path / "out", calibration_loader=batches(seed=1), config=CONFIG)
    assert contents(tmp_path) == {}


# --------------------------------------------------------------------------- corner cases


def test_a_regression_that_fits_exactly_reports_no_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(4, 2)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    data = [(inputs, torch.zeros(len(inputs), 2)) for inputs, _ in batches()]
    config = CONFIG.model_copy(update={"likelihood": "regression", "sigma_noise": 0.1})
    metrics = captured(monkeypatch, model, data, data, config)["metrics"]
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
    assert export_onnx(jacobian, example, 2)[0]
