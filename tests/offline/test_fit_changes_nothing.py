"""fit_bundle changes nothing that is the user's, and leaves nothing behind where it fails or is interrupted."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import probity.offline.fit
import probity.offline.job
import probity.offline.laplace.calibration
import probity.offline.laplace.inference
import probity.offline.publish.bundle
import probity.offline.publish.exporter
import probity.offline.publish.plain_answers
import probity.offline.selection.select
from probity.offline import fit_bundle
from probity.service.bundle import read_bundle
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
    "copied_model": probity.offline.job,
    "check_input_spec": probity.offline.fit,
    "collect_held_out": probity.offline.fit,
    "select": probity.offline.selection.select,
    "make_jacobian": probity.offline.job,
    "accumulate_ggn": probity.offline.fit,
    "fit_added_weights": probity.offline.fit,
    "sweep_prior": probity.offline.laplace.inference,
    "factor": probity.offline.laplace.inference,
    "predict_held_out": probity.offline.laplace.calibration,
    "suited": probity.offline.laplace.calibration,
    "choose_scale": probity.offline.laplace.inference,
    "export_variance": probity.offline.publish.exporter,
    "make_manifest": probity.offline.publish.bundle,
    "seal_bundle": probity.offline.publish.bundle,
    "plain_jacobian": probity.offline.publish.plain_answers,
    "verify": probity.offline.publish.exporter,
    "foreign_rejection": probity.offline.publish.exporter,
    "report_html": probity.offline.publish.bundle,
    "reseal_manifest": probity.offline.publish.bundle,
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_failing_stage_changes_nothing_and_leaves_nothing_behind(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise Stop

    if stage in ("export_variance", "plain_jacobian", "verify", "foreign_rejection"):
        monkeypatch.setattr(probity.offline.fit, "check_whole_way", lambda *_: None)
        monkeypatch.setattr(probity.offline.publish.exporter, "export_variance", lambda *_: (b"graph", 18))
        monkeypatch.setattr(probity.offline.publish.exporter, "verify", lambda *_: None)
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
