"""service/bundle.py: a bundle comes back as it was written, and tensors that cannot be right are refused."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from demur.service.bundle import (
    CALIBRATION,
    MANIFEST,
    POSTERIOR,
    README,
    SEAL,
    CholeskyPosterior,
    pack_lower_triangle,
    read_bundle,
    unpack_lower_triangle,
    write_bundle,
)
from tests.support.bundles import Synthetic
from tests.support.tamper import (
    Change,
    contents,
    load_json,
    put,
    put_tensors,
    raw_safetensors,
    refusal,
    replaced,
    save_json,
    setter,
    swap,
    tensors,
)

Array = npt.NDArray[Any]


def test_a_bundle_comes_back_as_it_was_written(any_bundle: Synthetic) -> None:
    bundle = read_bundle(str(any_bundle.path))
    assert dataclasses.replace(bundle.manifest, files={}) == any_bundle.manifest
    assert bundle.digest == load_json(any_bundle.path)[SEAL]
    assert type(bundle.posterior) is type(any_bundle.posterior)
    for name, expected in vars(any_bundle.posterior).items():
        np.testing.assert_array_equal(getattr(bundle.posterior, name), expected)
    np.testing.assert_array_equal(bundle.subnetwork_indices, any_bundle.indices)
    np.testing.assert_array_equal(bundle.calibration.scores, any_bundle.scores)
    assert all(a.dtype == np.float32 for a in vars(bundle.posterior).values() if isinstance(a, np.ndarray))
    assert bundle.subnetwork_indices.dtype == np.int64
    assert bundle.calibration.scores.dtype == np.float64


def test_the_manifest_states_size_and_hash_of_every_other_file(any_bundle: Synthetic) -> None:
    files = contents(any_bundle.path)
    stated = load_json(any_bundle.path)["files"]
    assert set(stated) == set(files) - {MANIFEST, README}
    for name, entry in stated.items():
        assert entry == {"sha256": hashlib.sha256(files[name]).hexdigest(), "bytes": len(files[name])}


def test_the_manifest_holds_the_hash_of_its_own_content(any_bundle: Synthetic) -> None:
    """Computed as the specification words it: sorted keys, no white space, ASCII, without the hash itself."""
    document = load_json(any_bundle.path)
    stated = document.pop(SEAL)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert stated == hashlib.sha256(canonical.encode("ascii")).hexdigest()


def test_another_layout_of_the_same_manifest_is_the_same_bundle(folder: Path) -> None:
    before, text = read_bundle(folder), (folder / MANIFEST).read_text()
    compact = json.dumps(dict(reversed(json.loads(text).items())))
    assert compact != text
    (folder / MANIFEST).write_text(compact)
    after = read_bundle(folder)
    assert (after.digest, after.manifest) == (before.digest, before.manifest)


@pytest.mark.parametrize("value", [None, "", "0" * 64, 1, [], {}], ids=str)
def test_a_wrong_hash_of_the_manifest_is_refused(folder: Path, value: Any) -> None:
    document = load_json(folder)
    (folder / MANIFEST).write_text(json.dumps(document | {SEAL: value}))
    refusal(folder, MANIFEST, "sha256: found", document.pop(SEAL), "the manifest was changed")
    (folder / MANIFEST).write_text(json.dumps(document))
    refusal(folder, MANIFEST, "sha256: found None")


def test_writing_the_same_twice_gives_the_same_bytes(classification: Synthetic, tmp_path: Path) -> None:
    bundle = read_bundle(classification.path)
    assert isinstance(bundle.posterior, CholeskyPosterior)
    again = write_bundle(
        tmp_path / "again",
        bundle.manifest,
        model=bundle.model,
        posterior=CholeskyPosterior(bundle.posterior.scale_tril.astype(np.float64)),
        subnetwork_indices=bundle.subnetwork_indices.astype(np.int32),
        calibration=bundle.calibration,
    )
    assert contents(again) == contents(classification.path)


@given(
    st.integers(1, 8).flatmap(lambda size: hnp.arrays(np.float32, (size, size), elements=st.floats(-9, 9, width=32)))
)
def test_packing_a_triangle_and_unpacking_it_are_inverse(matrix: Array) -> None:
    size = len(matrix)
    packed = pack_lower_triangle(matrix)
    assert packed.shape == (size * (size + 1) // 2,)
    assert packed.tolist() == [matrix[i, j] for i in range(size) for j in range(i + 1)]
    np.testing.assert_array_equal(unpack_lower_triangle(packed, size), np.tril(matrix))
    np.testing.assert_array_equal(pack_lower_triangle(unpack_lower_triangle(packed, size)), packed)


def without(name: str) -> Change:
    return lambda loaded: loaded.__delitem__(name)


FACTOR, INDICES, SCORES = "scale_tril_packed", "subnetwork_indices", "scores"
LAST = np.iinfo(np.int64).max
WRONG_TENSORS: dict[str, tuple[str, Change, str]] = {
    "factor NaN": (POSTERIOR, setter(FACTOR, 1, np.nan), "'scale_tril_packed': found NaN or infinity"),
    "factor infinite": (POSTERIOR, setter(FACTOR, 1, np.inf), "'scale_tril_packed': found NaN or infinity"),
    "diagonal zero": (POSTERIOR, setter(FACTOR, 2, 0.0), "diagonal entry that is not positive"),
    "diagonal negative": (POSTERIOR, setter(FACTOR, 0, -0.5), "diagonal entry that is not positive"),
    "factor short": (POSTERIOR, swap(FACTOR, lambda a: a[:-1]), "found shape (20,), expected (21,)"),
    "factor long": (POSTERIOR, swap(FACTOR, lambda a: np.append(a, a[:1])), "found shape (22,), expected (21,)"),
    "factor square": (POSTERIOR, swap(FACTOR, lambda a: unpack_lower_triangle(a, 6)), "found shape (6, 6)"),
    "factor float64": (
        POSTERIOR,
        swap(FACTOR, lambda a: a.astype(np.float64)),
        "found dtype float64, expected float32",
    ),
    "factor float16": (POSTERIOR, swap(FACTOR, lambda a: a.astype(np.float16)), "found dtype float16"),
    "factor complex": (POSTERIOR, swap(FACTOR, lambda a: a.astype(np.complex64)), "found dtype complex64"),
    "factor missing": (POSTERIOR, without(FACTOR), "tensor 'scale_tril_packed' is missing"),
    "indices swapped": (POSTERIOR, swap(INDICES, lambda a: a[::-1]), "strictly ascending"),
    "index twice": (POSTERIOR, swap(INDICES, lambda a: np.concatenate([a[:1], a[:-1]])), "strictly ascending"),
    "index negative": (POSTERIOR, setter(INDICES, 0, -1), "strictly ascending positions below 15"),
    "index too large": (POSTERIOR, setter(INDICES, -1, 15), "strictly ascending positions below 15"),
    "indices wrap around": (POSTERIOR, setter(INDICES, slice(-2, None), [LAST, -LAST - 1]), "strictly ascending"),
    "indices int32": (POSTERIOR, swap(INDICES, lambda a: a.astype(np.int32)), "found dtype int32, expected int64"),
    "indices short": (POSTERIOR, swap(INDICES, lambda a: a[:-1]), "found shape (5,), expected (6,)"),
    "indices missing": (POSTERIOR, without(INDICES), "tensor 'subnetwork_indices' is missing"),
    "posterior extra": (POSTERIOR, lambda loaded: loaded.update(extra=np.zeros(2)), "unexpected tensor 'extra'"),
    "score NaN": (CALIBRATION, setter(SCORES, 3, np.nan), "'scores': found NaN or infinity"),
    "score infinite": (CALIBRATION, setter(SCORES, -1, np.inf), "'scores': found NaN or infinity"),
    "scores descending": (CALIBRATION, swap(SCORES, lambda a: a[::-1]), "ascending order"),
    "scores float32": (CALIBRATION, swap(SCORES, lambda a: a.astype(np.float32)), "found dtype float32"),
    "scores short": (CALIBRATION, swap(SCORES, lambda a: a[1:]), "found shape (39,), expected (40,)"),
    "scores missing": (CALIBRATION, without(SCORES), "tensor 'scores' is missing"),
    "threshold differs": (CALIBRATION, setter(SCORES, slice(None), np.arange(40.0)), ""),
    "calibration extra": (CALIBRATION, lambda loaded: loaded.update(extra=np.zeros(2)), "unexpected tensor 'extra'"),
}


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_wrong_tensors_are_refused_though_their_hashes_are_right(folder: Path, case: str) -> None:
    file, change, message = WRONG_TENSORS[case]
    loaded = tensors(folder, file)
    change(loaded)
    put_tensors(folder, file, loaded)
    refusal(folder, MANIFEST if case == "threshold differs" else file, message)


def test_the_reference_quantiles_of_older_bundles_are_ignored(folder: Path) -> None:
    older = tensors(folder, CALIBRATION) | {"reference.functional_variance": np.zeros(5)}
    put_tensors(folder, CALIBRATION, older)
    np.testing.assert_array_equal(read_bundle(folder).calibration.scores, older[SCORES])


def test_no_scores_at_all_are_refused(folder: Path) -> None:
    loaded = tensors(folder, CALIBRATION)
    loaded[SCORES] = loaded[SCORES][:0]
    put_tensors(folder, CALIBRATION, loaded)
    save_json(folder, replaced(load_json(folder), ("calibration", "examples"), 0))
    with pytest.raises(ValueError, match="calibration"):
        read_bundle(folder)


def test_a_threshold_that_disagrees_with_the_scores_is_refused(folder: Path) -> None:
    save_json(folder, replaced(load_json(folder), ("calibration", "threshold"), 0.123))
    refusal(folder, MANIFEST, "calibration.threshold: found 0.123, the calibration scores give 0.8")


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {FACTOR: {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


NOT_SAFETENSORS: dict[str, bytes] = {
    "empty": b"",
    "three bytes": b"abc",
    "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94\x8c\x05print\x94\x93\x94.",
    "no JSON": raw_safetensors(b"{,}"),
    "a list": raw_safetensors([]),
    "no tensors": raw_safetensors({}),
    "deep": raw_safetensors(b'{"a":' * 50_000),
    "length beyond the file": raw_safetensors({}, length=10_000),
    "length 100 MB": raw_safetensors({}, length=100_000_001),
    "length 2^63": raw_safetensors({}, length=2**63),
    "length 2^64 - 1": raw_safetensors({}, length=2**64 - 1),
    "negative offset": raw_safetensors(entry(offsets=(-1, 3)), b"abcd"),
    "offsets beyond the file": raw_safetensors(entry(shape=(100,), offsets=(0, 400)), b"abcd"),
    "offsets backwards": raw_safetensors(entry(offsets=(4, 0)), b"abcd"),
    "bytes left over": raw_safetensors(entry(), b"abcdefgh"),
    "shape too large to count": raw_safetensors(entry(shape=(2**62, 2**62)), b"abcd"),
    "no elements of a huge shape": raw_safetensors(entry(shape=(2**62, 0), offsets=(0, 0))),
    "100 dimensions": raw_safetensors(entry(shape=[1] * 100), b"abcd"),
    "surrogate": raw_safetensors(b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"abcd"),
    **{
        f"type {dtype}": raw_safetensors(entry(dtype, shape, (0, 4)), b"abcd")
        for dtype, shape in [("BF16", [2]), ("F8_E4M3", [4]), ("F8_E8M0", [4]), ("F4", [8]), ("I32", [1]), ("X", [1])]
    },
}


@pytest.mark.parametrize("case", NOT_SAFETENSORS)
@pytest.mark.parametrize("file", [POSTERIOR, CALIBRATION])
def test_what_is_no_safetensors_file_is_refused_though_its_hash_is_right(folder: Path, file: str, case: str) -> None:
    put(folder, file, NOT_SAFETENSORS[case])
    refusal(folder, file)
