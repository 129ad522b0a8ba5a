"""calibration.parts of the score `surprise`: read back, and refused where they cannot be."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.bundle import BundleError, Manifest, ScorePart, read_bundle, reseal_manifest
from demur.service.format.manifest_json import manifest_from_json
from demur.service.format.rules import ManifestError
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import SCORES
from demur.service.maths.surprise import Component, LargestSurprise
from tests.support.added import write_added
from tests.support.bundles import Synthetic
from tests.support.manifests import document
from tests.support.tamper import load_json, refusal, save_json

LEAST = math.log(20)
PARTS = (ScorePart("predictive_entropy", 2.0, 0.25), ScorePart("distance", 3.0, 0.5, LEAST, 1.0))


def largest(**changes: Any) -> LargestSurprise:
    """What `PARTS` describe, with changes to the distribution of the last one."""
    parts = []
    for part in PARTS:
        found = ScoreDistribution(np.array([1.0, 4.0]), np.array([0.0, math.log(10)]), part.scale, part.shape)
        parts.append(Component(SCORES[part.name], found, part.least, part.end))
    last = replace(parts[-1], distribution=replace(parts[-1].distribution, **changes))
    return LargestSurprise((parts[0], last))


def write(folder: Path, scoring: LargestSurprise) -> Synthetic:
    return write_added(folder, scoring=scoring, calibration={"score": "surprise", "parts": PARTS})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    return write(tmp_path_factory.mktemp("surprise"), largest())


def test_they_are_read_back(written: Synthetic) -> None:
    bundle = read_bundle(written.path)
    assert bundle.manifest.calibration.parts == PARTS
    scoring = bundle.calibration.scoring
    assert isinstance(scoring, LargestSurprise)
    for part, expected in zip(scoring.components, largest().components, strict=True):
        assert (part.score, part.least, part.end) == (expected.score, expected.least, expected.end)
        assert (part.distribution.scale, part.distribution.shape) == (
            expected.distribution.scale,
            expected.distribution.shape,
        )
        np.testing.assert_array_equal(part.distribution.values, expected.distribution.values)
        np.testing.assert_array_equal(part.distribution.surprise, expected.distribution.surprise)


def test_the_level_from_which_a_part_counts() -> None:
    assert [part.least_level for part in PARTS] == pytest.approx([0, 0.95])


def changed(manifest: Manifest, parts: tuple[ScorePart, ...] | None, score: str = "surprise") -> Manifest:
    calibration = replace(manifest.calibration, parts=parts, score=score)  # type: ignore[arg-type]
    return replace(manifest, calibration=calibration)


@pytest.mark.parametrize(
    ("parts", "score", "expected"),
    [
        (None, "surprise", "what 'surprise' is made of"),
        ((), "surprise", "what 'surprise' is made of"),
        (PARTS, "predictive_entropy", "what 'surprise' is made of"),
        ((PARTS[0], replace(PARTS[0], least=LEAST)), "surprise", "names that differ"),
        ((PARTS[1],), "surprise", "one that counts from 0 on"),
        ((PARTS[0], replace(PARTS[1], name="epistemic_std")), "surprise", "single scores of a classification"),
        ((PARTS[0], replace(PARTS[1], name="surprise")), "surprise", "single scores of a classification"),  # type: ignore[arg-type]
    ],
)
def test_parts_that_cannot_be(
    written: Synthetic, parts: tuple[ScorePart, ...] | None, score: str, expected: str
) -> None:
    with pytest.raises(ManifestError, match=rf"calibration\.parts: found .*, expected {expected}"):
        changed(written.manifest, parts, score)


def test_a_part_is_one_that_the_graph_gives(written: Synthetic) -> None:
    graph = replace(written.manifest.graph, feature_scores=None)
    with pytest.raises(ManifestError, match=r"calibration\.parts: found .*, expected single scores of a classif"):
        replace(written.manifest, graph=graph)


def test_no_surprise_of_a_regression(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"calibration\.score: found 'surprise', expected one of epistemic_std"):
        write_added(tmp_path, regression=True, calibration={"score": "surprise", "parts": PARTS[:1]})


@pytest.mark.parametrize("field", ["name", "scale", "shape", "least"])
def test_every_field_is_needed(written: Synthetic, field: str) -> None:
    data = document(written.manifest)
    del data["calibration"]["parts"][1][field]
    with pytest.raises(ManifestError, match=rf"calibration\.parts\[1\]\.{field}: missing field"):
        manifest_from_json(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scale", 0.0),
        ("scale", -1.0),
        ("scale", 1e-250),
        ("shape", -0.1),
        ("shape", 1.0),
        ("least", -1.0),
        ("end", 0.0),
    ],
)
def test_numbers_out_of_range(written: Synthetic, field: str, value: float) -> None:
    data = document(written.manifest)
    data["calibration"]["parts"][1][field] = value
    with pytest.raises(ManifestError, match=rf"calibration\.parts\[1\]\.{field}: "):
        manifest_from_json(data)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"values": np.array([2.0, 1.0])}, r"part\.distance\.values: found something else, expected 1 to 256 numbers"),
        ({"values": np.arange(257.0), "surprise": np.zeros(257)}, "values: found something else, expected 1 to 256"),
        ({"surprise": np.array([-1.0, 2.0])}, r"part\.distance\.surprise: expected numbers of at least 0"),
        ({"surprise": np.array([2.0, 1.0])}, "surprise: expected numbers of at least 0, in ascending order"),
        ({"surprise": np.array([1.0, 2.0, 3.0])}, r"found shape \(3,\), expected \(2,\)"),
        ({"values": np.array([1.0, np.inf])}, "found NaN or infinity"),
    ],
    ids=str,
)
def test_a_distribution_that_is_none(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(BundleError, match=problem):
        read_bundle(write(tmp_path, largest(**changes)).path)


@pytest.mark.parametrize(
    "other",
    [
        lambda part: replace(part, least=2.0),
        lambda part: replace(part, end=None),
        lambda part: replace(part, distribution=replace(part.distribution, scale=1.0)),
        lambda part: replace(part, distribution=replace(part.distribution, shape=0.1)),
    ],
)
def test_the_scoring_is_that_of_the_manifest(tmp_path: Path, other: Callable[[Component], Component]) -> None:
    first, last = largest().components
    with pytest.raises(ValueError, match="scoring: found 'surprise', expected 'surprise' with its parts as in the man"):
        write(tmp_path, LargestSurprise((first, other(last))))


def test_tensors_of_other_parts(tmp_path: Path) -> None:
    first = LargestSurprise(largest().components[:1])
    path = write_added(tmp_path, scoring=first, calibration={"score": "surprise", "parts": PARTS[:1]}).path
    manifest = read_bundle(path).manifest
    reseal_manifest(path, changed(manifest, (replace(PARTS[0], name="distance"),)))
    with pytest.raises(BundleError, match=r"tensor 'part\.distance\.values' is missing"):
        read_bundle(path)


def test_earlier_bundles_count_no_odds(tmp_path: Path) -> None:
    first, last = largest().components
    parts = (PARTS[0], replace(PARTS[1], end=None))
    scoring = LargestSurprise((first, replace(last, end=None)))
    path = write_added(tmp_path, scoring=scoring, calibration={"score": "surprise", "parts": parts}).path
    data = load_json(path)
    for part in data["calibration"]["parts"]:
        del part["end"]
    save_json(path, data)
    bundle = read_bundle(path)
    assert bundle.manifest.calibration.parts == parts
    assert isinstance(bundle.calibration.scoring, LargestSurprise)
    assert [part.end for part in bundle.calibration.scoring.components] == [None, None]


COMPARED = [
    {"name": "fused", "shift_auroc": 0.96, "chosen": False},
    {"name": "energy", "shift_auroc": 0.98, "chosen": True},
]


@pytest.mark.parametrize("compared", [None, COMPARED])
@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_what_only_earlier_bundles_have_is_not_read(written: Synthetic, weight: float, compared: Any) -> None:
    data = document(written.manifest)
    data["calibration"] |= {"compared": compared}
    for part in data["calibration"]["parts"]:
        part["weight"] = weight
    assert manifest_from_json(data) == written.manifest


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("compared", [None, COMPARED])
def test_a_bundle_whose_score_is_a_sum_is_refused(tmp_path: Path, compared: Any, later: bool) -> None:
    """Earlier fits wrote such bundles: no service may decide by another score than theirs."""
    path = write(tmp_path, largest()).path
    data = load_json(path)
    data["calibration"] |= {"score": "fused", "compared": compared}
    data["calibration"]["parts"] = [part | {"weight": 0.5, "least": 0.0} for part in data["calibration"]["parts"]]
    data["format_version"] = "1.1" if later else "1.0"
    save_json(path, data)
    refusal(
        path, "manifest.json", "calibration.score: found 'fused', expected 'predictive_entropy'", "fit the bundle again"
    )


REMOVED = (
    "top_probability",
    "epistemic_entropy",
    "logit_variance",
    "class_variance",
    "relative_variance",
    "energy",
    "generalised_entropy",
    "max_logit",
    "predictive_std",
)


@pytest.mark.parametrize("name", REMOVED)
def test_a_bundle_with_a_score_of_earlier_fits_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, largest()).path
    data, known = load_json(path), "expected 'predictive_entropy', 'distance'"
    data["calibration"]["parts"][0]["name"] = name
    save_json(path, data)
    refusal(path, "manifest.json", f"calibration.parts[0].name: found '{name}', {known}", "fit the bundle again")
    data["calibration"] |= {"score": name, "parts": None}
    save_json(path, data)
    refusal(path, "manifest.json", f"calibration.score: found '{name}', {known}", "fit the bundle again")
