"""graph.feature_scores in a manifest: read back, and refused where they cannot be."""

import dataclasses
from pathlib import Path

import pytest

from service.bundle import Calibration, Graph, Manifest
from service.format.manifest_json import manifest_from_json
from service.format.rules import ManifestError
from service.maths.scores import ScoreName
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.manifests import document

GRAPH = Graph("variance", 10, feature_scores=("mahalanobis", "middle_mahalanobis"))
OTHER = Graph("variance", 10)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("linear") / "bundle"
    return dataclasses.replace(write_linear(folder, outputs=3, spec=FEATURE_SPEC).manifest, graph=GRAPH)


def scored_by(manifest: Manifest, score: ScoreName) -> Calibration:
    return dataclasses.replace(manifest.calibration, score=score)


def test_they_are_read_back(manifest: Manifest) -> None:
    found = manifest_from_json(document(manifest))
    assert found.graph == GRAPH
    assert found.feature_scores == GRAPH.feature_scores
    assert dataclasses.replace(manifest, graph=OTHER).feature_scores == ()


def test_names_are_known_and_differ(manifest: Manifest) -> None:
    for wrong in ((), ("mahalanobis", "mahalanobis")):
        with pytest.raises(ManifestError, match=r"graph\.feature_scores: found .*, expected null or different names"):
            Graph("variance", 10, feature_scores=wrong)
    data = document(manifest)
    data["graph"]["feature_scores"] = ["energy"]
    with pytest.raises(ManifestError, match=r"graph\.feature_scores\[0\]: found 'energy'"):
        manifest_from_json(data)


def test_a_score_is_one_that_the_graph_gives(manifest: Manifest) -> None:
    used = dataclasses.replace(manifest, calibration=scored_by(manifest, "mahalanobis"))
    assert used.calibration.score == "mahalanobis"
    with pytest.raises(ManifestError, match=r"calibration\.score: found 'mahalanobis', expected one of predictive_ent"):
        dataclasses.replace(used, graph=OTHER)
    only = dataclasses.replace(GRAPH, feature_scores=("middle_mahalanobis",))
    with pytest.raises(ManifestError, match=r"calibration\.score: found 'mahalanobis'"):
        dataclasses.replace(used, graph=only)


def test_none_with_a_regression(tmp_path: Path) -> None:
    regression = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC, regression=True).manifest
    expected = r"graph\.feature_scores: found .*, expected null for a regression"
    with pytest.raises(ManifestError, match=expected):
        dataclasses.replace(regression, graph=GRAPH)
