"""graph.feature_scores in a manifest: read back, and refused where they cannot be."""

import dataclasses

import pytest

from demur.service.bundle import Graph, Manifest
from demur.service.format.manifest_json import manifest_from_json
from demur.service.format.rules import ManifestError
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.manifests import document

GRAPH = Graph(10, feature_scores=("distance",))
OTHER = Graph(10)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("linear") / "bundle"
    return dataclasses.replace(write_linear(folder, outputs=3, spec=FEATURE_SPEC).manifest, graph=GRAPH)


def test_they_are_read_back(manifest: Manifest) -> None:
    found = manifest_from_json(document(manifest))
    assert found.graph == GRAPH
    assert found.feature_scores == GRAPH.feature_scores
    assert dataclasses.replace(manifest, graph=OTHER).feature_scores == ()


def test_names_are_known_and_differ(manifest: Manifest) -> None:
    for wrong in ((), ("distance", "distance")):
        with pytest.raises(ManifestError, match=r"graph\.feature_scores: found .*, expected null or different names"):
            Graph(10, feature_scores=wrong)
    data = document(manifest)
    data["graph"]["feature_scores"] = ["predictive_entropy"]
    with pytest.raises(ManifestError, match=r"graph\.feature_scores\[0\]: found 'predictive_entropy'"):
        manifest_from_json(data)


def test_a_score_is_one_that_the_graph_gives(manifest: Manifest) -> None:
    calibration = dataclasses.replace(manifest.calibration, score="distance")
    used = dataclasses.replace(manifest, calibration=calibration)
    assert used.calibration.score == "distance"
    with pytest.raises(ManifestError, match=r"calibration\.score: found 'distance', expected one of predictive_ent"):
        dataclasses.replace(used, graph=OTHER)
