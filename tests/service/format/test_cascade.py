"""The cascade in a bundle: written and read back, and refused where manifest and files do not fit together."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.bundle import CASCADE_CALIBRATION, CASCADE_MODEL, MANIFEST, BundleError, read_bundle
from service.format.manifest_json import manifest_from_json
from service.format.rules import ManifestError
from tests.support.bundles import Synthetic
from tests.support.cascades import CascadeBundle, write_cascade
from tests.support.manifests import document
from tests.support.tamper import copy_bundle, load_json, put_tensors, replaced, save_json, setter, tensors


@pytest.fixture(scope="module")
def cascade(tmp_path_factory: pytest.TempPathFactory) -> CascadeBundle:
    return write_cascade(tmp_path_factory.mktemp("cascade") / "bundle")


@pytest.fixture
def folder(cascade: CascadeBundle, tmp_path: Path) -> Path:
    return copy_bundle(cascade.path, tmp_path / "bundle")


def test_it_comes_back_as_it_was_written(cascade: CascadeBundle) -> None:
    bundle = read_bundle(cascade.path)
    assert bundle.manifest.cascade == cascade.cascade
    assert bundle.cascade is not None
    np.testing.assert_array_equal(bundle.cascade.calibration.scores, cascade.scores)
    assert set(bundle.cascade.calibration.reference) == {"ood_score"}
    assert manifest_from_json(document(bundle.manifest)) == bundle.manifest


def test_a_bundle_without_one_has_no_files_of_it(classification: Synthetic) -> None:
    bundle = read_bundle(classification.path)
    assert bundle.manifest.cascade is None
    assert bundle.cascade is None
    assert not {CASCADE_MODEL, CASCADE_CALIBRATION} & set(bundle.manifest.files)


@pytest.mark.parametrize("name", [CASCADE_MODEL, CASCADE_CALIBRATION])
def test_a_file_that_is_not_listed_or_not_there_or_changed_is_refused(folder: Path, name: str) -> None:
    data = load_json(folder)
    content = bytearray((folder / name).read_bytes())
    content[-1] ^= 1
    (folder / name).write_bytes(bytes(content))
    with pytest.raises(BundleError, match="the file was changed"):
        read_bundle(folder)
    (folder / name).unlink()
    with pytest.raises(BundleError, match="missing file"):
        read_bundle(folder)
    files = {key: entry for key, entry in data["files"].items() if key != name}
    save_json(folder, replaced(data, ("files",), files))
    with pytest.raises(BundleError, match=f"files: '{name}' is not listed"):
        read_bundle(folder)


def test_files_of_a_cascade_that_the_manifest_does_not_describe_are_refused(folder: Path) -> None:
    save_json(folder, replaced(load_json(folder), ("cascade",), None))
    with pytest.raises(BundleError, match=f"{MANIFEST}: files: found the name '{CASCADE_MODEL}', expected only"):
        read_bundle(folder)


def test_scores_of_another_number_or_order_are_refused(folder: Path) -> None:
    for place, value, problem in ((0, 1e9, "ascending order"), (slice(0, 1), np.nan, "NaN")):
        loaded = tensors(folder, CASCADE_CALIBRATION)
        setter("scores", place, value)(loaded)
        put_tensors(folder, CASCADE_CALIBRATION, loaded)
        with pytest.raises(BundleError, match=f"{CASCADE_CALIBRATION}: .*{problem}"):
            read_bundle(folder)


WRONG: list[tuple[tuple[str, ...], Any, str]] = [
    (("low",), 1e9, "low: found 1000000000.0, expected at most high"),
    (("low",), -1.0, "cascade.low"),
    (("high",), 0.0, "cascade.high"),
    (("threshold",), 0.0, "cascade.threshold"),
    (("size",), 10**6, "cascade.size: found 1000000, expected at most 15"),
    (("agreement", "decided"), 41, "decided: found 41, expected at most 40"),
    (("agreement", "agreement"), None, "agreement: found None, expected null where nothing is decided, else a number"),
    (("agreement", "lower_bound"), 1.5, "lower_bound"),
    (("calibration", "score"), "epistemic_std", "score: found 'epistemic_std', expected 'predictive_entropy'"),
    (("calibration", "false_reject_rate"), 0.2, "false_reject_rate: found 0.2, expected that of the bundle, 0.1"),
]


@pytest.mark.parametrize(("place", "value", "problem"), WRONG, ids=str)
def test_what_cannot_be_is_refused(cascade: CascadeBundle, place: tuple[str, ...], value: Any, problem: str) -> None:
    original = document(read_bundle(cascade.path).manifest)
    with pytest.raises(ManifestError) as caught:
        manifest_from_json(replaced(original, ("cascade", *place), value))
    assert problem in str(caught.value)


def test_a_band_may_have_no_upper_end(cascade: CascadeBundle) -> None:
    original = document(read_bundle(cascade.path).manifest)
    found = manifest_from_json(replaced(original, ("cascade", "high"), None))
    assert found.cascade == dataclasses.replace(cascade.cascade, high=None)


def test_it_cannot_be_said_in_an_earlier_version(cascade: CascadeBundle) -> None:
    original = document(read_bundle(cascade.path).manifest)
    with pytest.raises(ManifestError, match="cascade: unknown field"):
        manifest_from_json(original | {"format_version": "1.4"})
