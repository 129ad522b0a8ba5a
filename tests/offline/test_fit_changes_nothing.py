"""fit_bundle changes nothing that is the user's, and leaves nothing behind where it fails or is interrupted."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import demur.offline.fit
import demur.offline.job
import demur.offline.laplace.added_scale
import demur.offline.laplace.calibration
import demur.offline.laplace.inference
import demur.offline.laplace.prior
import demur.offline.publish.bundle
import demur.offline.publish.exporter
import demur.offline.publish.plain_answers
import demur.offline.runtime.plain_torch
import demur.offline.selection.select
from demur.offline import CheckpointError, fit_bundle
from demur.offline.laplace.outcomes import Predicted
from demur.offline.publish.every_example import EveryExample
from demur.offline.runtime.arrays import Array
from demur.offline.runtime.checkpoint import Checkpoint, checkpoint_folder
from demur.service.bundle import read_bundle
from demur.service.inference.predictor import Predictor
from tests.support.small_fit import CONFIG, Stop, batches, captured, network, skip_export, state


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
    "copied_model": demur.offline.job,
    "check_input_spec": demur.offline.fit,
    "collect_held_out": demur.offline.fit,
    "select": demur.offline.selection.select,
    "make_jacobian": demur.offline.job,
    "accumulate_ggn": demur.offline.fit,
    "fit_added_weights": demur.offline.fit,
    "sweep_prior": demur.offline.laplace.prior,
    "factor": demur.offline.laplace.inference,
    "predict_held_out": demur.offline.laplace.calibration,
    "suited": demur.offline.laplace.calibration,
    "choose_scale": demur.offline.laplace.added_scale,
    "export_variance": demur.offline.publish.exporter,
    "make_manifest": demur.offline.publish.bundle,
    "seal_bundle": demur.offline.publish.bundle,
    "plain_jacobian": demur.offline.publish.plain_answers,
    "verify": demur.offline.publish.exporter,
    "foreign_rejection": demur.offline.publish.exporter,
    "report_html": demur.offline.publish.bundle,
    "reseal_manifest": demur.offline.publish.bundle,
}


def as_torch(_: object, halves: Sequence[Predicted], __: object) -> EveryExample:
    parts = [half.data.inputs for half in halves]
    count = sum(map(len, parts))
    return EveryExample(parts, *np.zeros((3, count)))


@pytest.mark.parametrize("stage", STAGES)
def test_a_failing_stage_changes_nothing_and_leaves_nothing_behind(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise Stop

    if stage in ("export_variance", "plain_jacobian", "verify", "foreign_rejection"):
        monkeypatch.setattr(demur.offline.fit, "check_whole_way", lambda *_: None)
        monkeypatch.setattr(demur.offline.publish.exporter, "export_variance", lambda *_: (b"graph", 18))
        monkeypatch.setattr(demur.offline.publish.exporter, "verify", lambda *_: None)
        monkeypatch.setattr(Predictor, "load", lambda _: None)
        monkeypatch.setattr(EveryExample, "served", as_torch)
    else:
        skip_export(monkeypatch)
    monkeypatch.setattr(STAGES[stage], stage, fails)
    alone = stage in ("sweep_prior", "suited")
    config = CONFIG.model_copy(
        update={"prior_precision": "gridsearch", "temperature": "fit", "added_weights": not alone}
    )
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


@pytest.mark.usefixtures("without_export")
def test_a_restart_discards_what_another_fit_has_kept(tmp_path: Path) -> None:
    def fit(restart: bool = False) -> None:
        held_out = batches(seed=1)
        fit_bundle(network(), batches(), tmp_path / "b", calibration_loader=held_out, config=CONFIG, restart=restart)

    kept = Checkpoint(checkpoint_folder(tmp_path / "b"), {"configuration": "{}"})
    assert kept.save("curvature", torch.zeros(3), {"batches": 4}, {})
    with pytest.raises(CheckpointError, match="another job's"):
        fit()
    assert [path.name for path in tmp_path.iterdir()] == [".b.checkpoint"]
    fit(restart=True)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.usefixtures("without_export")
def test_a_container_of_one_processor_gets_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demur.offline.runtime.plain_torch, "available_cpus", lambda: 1)
    lines, before = list[str](), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        held_out = batches(seed=1)
        fit_bundle(network(), batches(), tmp_path / "b", calibration_loader=held_out, config=CONFIG, say=lines.append)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert any(line.startswith("threads: 1;") for line in lines)


def test_the_seed_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a loader that shuffles by the global generator."""
    inputs, targets = (torch.cat(parts) for parts in zip(*batches(40), strict=True))
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)
    options = {"selection": "wasserstein-swag", "selection_options": {"snapshots": 2}, "subnetwork_size": 20}
    chosen = []
    for seed, noise in ((0, 1), (0, 2), (5, 1)):
        torch.manual_seed(noise)
        config = CONFIG.model_copy(update={**options, "seed": seed})
        chosen.append(
            captured(monkeypatch, network(), loader, batches(seed=1), config).fitted.subnetwork.indices.tolist()
        )
    assert chosen[0] == chosen[1] != chosen[2]


@contextmanager
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


CALLERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "float64": float64,
    "no gradients": torch.no_grad,
    "inference mode": torch.inference_mode,
    "anomaly detection": torch.autograd.detect_anomaly,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


def set_by_the_caller() -> list[object]:
    return [
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_anomaly_enabled(),
    ]


def test_another_default_device_is_refused_by_name(tmp_path: Path) -> None:
    with torch.device("meta"), pytest.raises(ValueError, match=r"get_default_device\(\): found 'meta', expected 'cpu'"):
        fit_bundle(network(), batches(), tmp_path / "bundle", calibration_loader=batches(seed=1), config=CONFIG)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("caller", CALLERS)
def test_what_the_caller_has_set_changes_nothing(caller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted() -> Array:
        found: Array = captured(monkeypatch, model, data, held_out, CONFIG).fitted.calibrated.outputs.mean
        return found

    model, data, held_out = network(), batches(), batches(seed=1)
    expected = fitted()
    with CALLERS[caller]():
        before = set_by_the_caller()
        np.testing.assert_array_equal(fitted(), expected)
        assert set_by_the_caller() == before
