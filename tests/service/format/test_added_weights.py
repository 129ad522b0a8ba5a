"""added_weights, the link that goes with them and map_temperature in a manifest."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from demur.service.bundle import Manifest
from demur.service.format.manifest_json import manifest_from_json
from demur.service.format.rules import ManifestError
from tests.support.added import ADDED, with_added_weights
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.manifests import document
from tests.support.tamper import replaced


@pytest.fixture(scope="module", params=["classification", "regression"])
def manifest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("linear") / "bundle"
    regression = request.param == "regression"
    linear = write_linear(folder, outputs=3, spec=FEATURE_SPEC, regression=regression).manifest
    return with_added_weights(linear, map_temperature=1.5)


def test_they_are_read_back(manifest: Manifest) -> None:
    found = manifest_from_json(document(manifest))
    assert found == manifest
    assert (found.added_weights, found.map_temperature) == (ADDED, 1.5)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("added_weights", "layers"), [], r"added_weights\.layers: .*at least one entry"),
        (("added_weights", "features"), 0, r"added_weights\.features: found 0"),
        (("added_weights", "prior_variance"), 0.0, r"added_weights\.prior_variance: found 0\.0"),
        (("added_weights", "budget"), 0.0, r"added_weights\.budget: found 0\.0"),
        (("added_weights", "cost"), None, r"added_weights\.cost: found None"),
        (("added_weights", "cost_error"), -1.0, r"added_weights\.cost_error: found -1\.0"),
        (("added_weights", "explanation"), None, r"added_weights\.explanation"),
        (("map_temperature",), 0.0, r"map_temperature: found 0\.0"),
        (("map_temperature",), None, r"map_temperature: found None"),
    ],
)
def test_what_is_refused(manifest: Manifest, place: tuple[Any, ...], value: Any, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        manifest_from_json(replaced(document(manifest), place, value))


def test_both_fields_are_mandatory(manifest: Manifest) -> None:
    for name in ("map_temperature", "added_weights"):
        data = document(manifest)
        del data[name]
        with pytest.raises(ManifestError, match=f"{name}: missing field"):
            manifest_from_json(data)


def test_one_divisor_for_all_logits_goes_with_them_alone(tmp_path: Path) -> None:
    plain = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).manifest
    added = with_added_weights(plain)
    for wrong in ({"link": "probit"}, {"added_weights": None}):
        with pytest.raises(ManifestError, match=r"link: found .*, expected 'probit-shared' with added weights"):
            dataclasses.replace(added, **wrong)
