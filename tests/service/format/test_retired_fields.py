"""Fields of a manifest that earlier writers added, and that nothing reads any more."""

from pathlib import Path

import pytest

from demur.service.format.manifest_json import manifest_from_json
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.manifests import document

REDUCED = {"rank": 1, "error_bound": 0.01, "error": 0.001, "examples": 40}
COMPUTED = {"kind": "margin", "count": 1, "effect": {"examples": 40}}


@pytest.mark.parametrize(
    ("name", "value"), [("computed", None), ("computed", COMPUTED), ("reduced", None), ("reduced", REDUCED)]
)
def test_how_earlier_graphs_compute_variances_is_ignored(tmp_path: Path, name: str, value: object) -> None:
    manifest = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).manifest
    data = document(manifest)
    assert name not in data["graph"]
    assert manifest_from_json(data | {"graph": data["graph"] | {name: value}}) == manifest
