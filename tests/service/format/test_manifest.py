"""service/format/manifest.py: what is written is read back, and nothing else gets in."""

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from demur.service.format.manifest import FORMAT_VERSION
from demur.service.format.manifest_input import ImagePreprocessing, InputRange, InputSpec
from demur.service.format.manifest_json import manifest_from_json, to_json
from demur.service.format.rules import ManifestError
from demur.service.format.seal import manifest_to_bytes
from tests.support.bundles import Synthetic
from tests.support.manifests import document
from tests.support.tamper import Place, places, replaced

characters = st.text(st.characters(), max_size=6)  # lone surrogates too, which JSON can spell
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**62, 2**63, -(2**63), 10**400, 0, -1])
    | st.floats()
    | characters
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(characters, inner, max_size=3), max_leaves=6
)


def test_a_manifest_survives_json(any_bundle: Synthetic) -> None:
    assert manifest_from_json(document(any_bundle.manifest)) == any_bundle.manifest


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_one_value_replaced_is_refused_or_a_sound_manifest(classification: Synthetic, data: st.DataObject) -> None:
    original = document(classification.manifest)
    place = data.draw(st.sampled_from(sorted(places(original), key=repr)))
    check_replaced(original, place, data.draw(json_values))


@pytest.mark.parametrize(
    "value", [None, True, "", "text", "\ud800", 0, -1, 1.5, 2**63, 10**400, float("inf"), float("nan"), [], {}, [[]]]
)
def test_every_value_in_turn_replaced_by_the_same(images: Synthetic, regression: Synthetic, value: Any) -> None:
    for manifest in (images.manifest, regression.manifest):
        original = document(manifest)
        for place in places(original):
            check_replaced(original, place, value)


def check_replaced(original: Any, place: Place, value: Any) -> None:
    try:
        manifest = manifest_from_json(replaced(original, place, value))
    except ManifestError:
        return
    text = json.dumps(to_json(manifest), allow_nan=False, ensure_ascii=False)
    assert manifest_from_json(json.loads(text.encode())) == manifest


def test_every_field_is_required(images: Synthetic) -> None:
    original = document(images.manifest)
    free = ("selection", "options"), ("metrics",), ("libraries",), ("files",)  # objects with keys of their own
    for place in places(original):
        if place and isinstance(place[-1], str) and place[:-1] not in free:
            data = replaced(original, place, None)
            parent = data
            for key in place[:-1]:
                parent = parent[key]
            del parent[place[-1]]
            with pytest.raises(ManifestError, match=r"missing field|demur-bundle|format_version"):
                manifest_from_json(data)


@pytest.mark.parametrize(("part", "changes"), [("temperature", 0.0), ("metrics", {"accuracy": float("inf")})])
def test_a_manifest_that_no_reader_takes_is_not_written(regression: Synthetic, part: str, changes: Any) -> None:
    with pytest.raises(ManifestError, match=f"{part}.*: found"):
        manifest_to_bytes(dataclasses.replace(regression.manifest, **{part: changes}))


@pytest.mark.parametrize("sigma", [None, 0.0, -1.0])
def test_a_regression_needs_positive_noise(regression: Synthetic, sigma: float | None) -> None:
    with pytest.raises(ManifestError, match="sigma_noise"):
        dataclasses.replace(regression.manifest, sigma_noise=sigma)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("name",), "\ud800"),
        (("class_names", 0), "\ud800"),
        (("selection", "options", "note"), "\ud800"),
        (("selection", "options", "share"), float("inf")),
        (("selection", "options", "share"), float("nan")),
    ],
    ids=["name", "class", "option", "infinity", "nan"],
)
def test_what_no_answer_could_spell_is_refused(classification: Synthetic, place: Place, value: Any) -> None:
    """A lone surrogate cannot be encoded and infinity is no JSON, so either would fail when the card is asked for."""
    with pytest.raises(ManifestError):
        manifest_from_json(replaced(document(classification.manifest), place, value))


def test_options_nested_deeper_than_any_answer_are_refused(classification: Synthetic) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ManifestError):
        manifest_from_json(replaced(document(classification.manifest), ("selection", "options", "share"), deep))


@pytest.mark.parametrize("version", ["2.0", "0.9", "99999.0"])
def test_another_major_version_is_refused_with_a_remedy(classification: Synthetic, version: str) -> None:
    with pytest.raises(ManifestError, match=f"found '{version}'.*install a release"):
        manifest_from_json(document(classification.manifest) | {"format_version": version})


@pytest.mark.parametrize(
    "version", ["1", "1.0.0", "1.x", 1.0, None, "", "1.", "-1.0", "\uff11.0", "1.999999", ["1", "0"]]
)
def test_a_malformed_version_is_refused(classification: Synthetic, version: Any) -> None:
    with pytest.raises(ManifestError, match="format_version"):
        manifest_from_json(document(classification.manifest) | {"format_version": version})


UNKNOWN: list[Place] = [("added",), ("input", "added"), ("selection", "parameters", 0, "added")]


@pytest.mark.parametrize("place", UNKNOWN, ids=str)
def test_an_unknown_field_is_for_later_minor_versions_only(classification: Synthetic, place: Place) -> None:
    data = replaced(document(classification.manifest), place, {"any": "thing"})
    with pytest.raises(ManifestError, match="added: unknown field"):
        manifest_from_json(data)
    later = manifest_from_json(data | {"format_version": "1.9"})
    assert dataclasses.replace(later, format_version=FORMAT_VERSION) == classification.manifest
    with pytest.raises(ManifestError, match=r"task: found 'ranking'.*; found format_version 1\.9: a later release"):
        manifest_from_json(data | {"format_version": "1.9", "task": "ranking"})


def test_scores_are_those_of_the_task(classification: Synthetic) -> None:
    data = document(classification.manifest)
    assert manifest_from_json(data).calibration.score == "predictive_entropy"
    with pytest.raises(ManifestError, match=r"found 'epistemic_std', expected one of predictive_entropy, "):
        manifest_from_json(replaced(data, ("calibration", "score"), "epistemic_std"))


@pytest.mark.parametrize(
    ("low", "high", "sound"),
    [
        ((0.0,), (1.0,), True),
        ((0.0, 1.0, 2.0), (0.0, 1.5, 2.0), True),
        ((0.0, 1.0), (1.0, 2.0), False),
        ((), (), False),
        ((0.0,), (1.0, 2.0), False),
        ((2.0,), (1.0,), False),
        ((0.0,), (1e31,), False),
        ((-1e31,), (0.0,), False),
    ],
)
def test_a_range_has_one_pair_or_one_for_each_place(low: Any, high: Any, sound: bool) -> None:
    with contextlib.nullcontext() if sound else pytest.raises(ManifestError, match=r"input\.range"):
        InputSpec(shape=(3, 2), range=InputRange(low, high))


def test_tokens_have_no_range() -> None:
    with pytest.raises(ManifestError, match=r"input\.range.*int64"):
        InputSpec(shape=(3,), dtype="int64", range=InputRange((0.0,), (1.0,)))


@example([])
@example(None)
@example("demur-bundle")
@example({"format": "demur-bundle", "format_version": FORMAT_VERSION})
@given(json_values)
def test_any_other_document_is_refused(data: Any) -> None:
    assume(data != {})
    with pytest.raises(ManifestError):
        manifest_from_json(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "RGB"}, "input.image.mode"),
        ({"mean": (0.1, 0.2)}, "input.image.mean"),
        ({"std": (0.0,)}, "input.image.std"),
        ({"std": (-1.0,)}, "input.image.std"),
        ({"mean": 0.5}, r"input.image.mean: found 0.5, expected numbers such as \(0.5,\)"),
        ({"scale": "1/255"}, "input.image.scale: found '1/255', expected a number such as 1 / 255"),
        ({"resize_to": ()}, "input.image.resize_to"),
        ({"resize_to": (8, 8, 8)}, "input.image.resize_to"),
        ({"resize_to": 8}, "input.image.resize_to"),
        ({"resize_to": (8.0,)}, "input.image.resize_to"),
        ({"resize_to": (3,)}, r"input.image.resize_to: found \(3,\), expected at least \(4,\)"),
        ({"resize_to": (4, 3)}, r"expected at least \(4, 4\)"),
        ({"resize_to": (2**20,)}, "at most 16384"),
        ({"resize_to": (8,), "resize": False}, "input.image.resize_to"),
    ],
)
def test_preprocessing_must_fit_the_input(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        InputSpec(shape=(1, 4, 4), image=ImagePreprocessing(**changes))


@pytest.mark.parametrize("shape", ["4", 4, (4.0,), None])
def test_a_shape_is_whole_numbers(shape: Any) -> None:
    with pytest.raises(ManifestError, match=r"input.shape: found .*, expected whole numbers such as \(3, 32, 32\)"):
        InputSpec(shape=shape)


def test_images_are_float32_with_three_dimensions() -> None:
    with pytest.raises(ManifestError, match=r"input\.dtype"):
        InputSpec(shape=(1, 4, 4), dtype="int64", image=ImagePreprocessing())
    with pytest.raises(ManifestError, match=r"input\.image\.mode"):
        InputSpec(shape=(16,), image=ImagePreprocessing())


@pytest.mark.parametrize(
    ("shape", "dtype", "rows"),
    [
        ((2,), "float32", ()),
        ((2,), "float32", ((1.0,),)),
        ((2,), "float32", ((1.0, 2.0), (1.0,))),
        ((2,), "float32", ((1.0, 1e31),)),
        ((2,), "float32", ((0.0, 0.0),) * 21),
        ((2, 1), "float32", ((1.0, 2.0),)),
        ((2,), "int64", ((1.0, 2.0),)),
    ],
)
def test_typical_rows_are_rows_of_the_input(shape: Any, dtype: Any, rows: Any) -> None:
    with pytest.raises(ManifestError, match=r"input\.typical: found"):
        InputSpec(shape=shape, dtype=dtype, typical=rows)


def test_typical_rows_come_back(classification: Synthetic) -> None:
    spec = dataclasses.replace(classification.manifest.input, typical=((1.0, 2.0, 3.0, 4.5),))
    manifest = dataclasses.replace(classification.manifest, input=spec)
    assert manifest_from_json(json.loads(json.dumps(to_json(manifest)))) == manifest
    assert "typical" not in to_json(classification.manifest)["input"]
