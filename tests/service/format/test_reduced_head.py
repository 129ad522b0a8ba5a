"""graph.reduced in a manifest: read back, and refused where it cannot be."""

import dataclasses
from pathlib import Path

import pytest

from demur.service.bundle import Graph, ReducedHead
from demur.service.format.manifest_json import manifest_from_json
from demur.service.format.rules import ManifestError
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.manifests import document


def test_a_reduced_head_is_read_back_and_its_numbers_must_fit(tmp_path: Path) -> None:
    manifest = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).manifest
    reduced = ReducedHead(1, error_bound=0.01, error=0.001, examples=40)
    graph = Graph(10, reduced=reduced)
    data = document(dataclasses.replace(manifest, graph=graph))
    assert manifest_from_json(data).graph == graph
    with pytest.raises(ManifestError, match=r"graph\.reduced: missing field"):
        manifest_from_json(data | {"graph": {k: v for k, v in data["graph"].items() if k != "reduced"}})
    with pytest.raises(ManifestError, match=r"graph\.reduced\.error: found 0\.02, expected .* to error_bound, 0\.01"):
        dataclasses.replace(reduced, error=0.02)
    wide = dataclasses.replace(graph, reduced=dataclasses.replace(reduced, rank=manifest.subnetwork_size + 1))
    with pytest.raises(ManifestError, match="a rank of at most S"):
        dataclasses.replace(manifest, graph=wide)


@pytest.mark.parametrize("computed", [None, {"kind": "margin", "count": 1, "effect": {"examples": 40}}])
def test_which_variances_earlier_graphs_compute_is_ignored(tmp_path: Path, computed: object) -> None:
    manifest = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).manifest
    data = document(manifest)
    assert "computed" not in data["graph"]
    assert manifest_from_json(data | {"graph": data["graph"] | {"computed": computed}}) == manifest
