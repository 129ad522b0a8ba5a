"""THE CONTRACT between the offline job and the service: write and read a bundle.

The reader and the writer stand side by side so that they cannot drift. A bundle is untrusted input: every
file is checked against the manifest before it is parsed, it is parsed from the very bytes that were
checked, and nothing is ever unpickled. `service/BUNDLE.md` is the normative text.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from service.bundle_files import (
    CALIBRATION,
    MANIFEST,
    MODEL,
    OPTIONAL_FILES,
    POSTERIOR,
    REQUIRED_FILES,
    BundleError,
    Folder,
    check_destination,
    staged_bundle,
    with_folder,
    write_file,
)
from service.manifest import (
    Calibration,
    FileEntry,
    ImagePreprocessing,
    InputSpec,
    Manifest,
    ManifestError,
    ParameterSlice,
    Posterior,
    Prior,
    Selection,
    Verification,
    manifest_from_json,
    to_json,
)

__all__ = [
    "CALIBRATION",
    "MANIFEST",
    "MAX_MANIFEST_BYTES",
    "MODEL",
    "OPTIONAL_FILES",
    "POSTERIOR",
    "REFERENCE_LEVELS",
    "REQUIRED_FILES",
    "SEAL",
    "Bundle",
    "BundleError",
    "Calibration",
    "FileEntry",
    "ImagePreprocessing",
    "InputSpec",
    "Manifest",
    "ParameterSlice",
    "Posterior",
    "Prior",
    "Selection",
    "Verification",
    "check_destination",
    "pack_lower_triangle",
    "read_bundle",
    "read_manifest",
    "reseal_manifest",
    "seal",
    "seal_bundle",
    "staged_bundle",
    "unpack_lower_triangle",
    "write_bundle",
]

SEAL = "sha256"
MAX_MANIFEST_BYTES = 16 * 2**20
REFERENCE_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Bundle:
    """A bundle read and checked.

    `scale_tril` (S, S) float32 is lower triangular with a positive diagonal, covariance =
    scale_tril @ scale_tril.T; `subnetwork_indices` (S,) int64 ascending positions in the flattened trainable
    weights; `calibration_scores` (n,) float64 ascending; `reference` maps a quantity to its values at
    `REFERENCE_LEVELS` on the calibration data; `digest` is the manifest's seal, and so that of everything.
    """

    path: Path
    digest: str
    manifest: Manifest
    model: bytes
    scale_tril: Array
    subnetwork_indices: Array
    calibration_scores: Array
    reference: dict[str, Array]


def pack_lower_triangle(matrix: Array) -> Array:
    """The lower triangle (S, S) -> (S (S + 1) / 2,), row by row."""
    return np.ascontiguousarray(matrix[np.tril_indices(len(matrix))])


def unpack_lower_triangle(packed: Array, size: int) -> Array:
    """Inverse of `pack_lower_triangle`: (S (S + 1) / 2,) -> (S, S) with zeros above the diagonal."""
    matrix = np.zeros((size, size), packed.dtype)
    matrix[np.tril_indices(size)] = packed
    return matrix


# --------------------------------------------------------------------------- writing


def seal_bundle(
    folder: Path,
    manifest: Manifest,
    model: bytes,
    scale_tril: Array,
    subnetwork_indices: Array,
    calibration_scores: Array,
    reference: Mapping[str, Array],
) -> Manifest:
    """Write every file of a bundle into an existing folder, the manifest last; return it with the hashes in."""
    posterior = {
        "scale_tril_packed": pack_lower_triangle(np.asarray(scale_tril, np.float32)),
        "subnetwork_indices": np.asarray(subnetwork_indices, np.int64),
    }
    calibration = {"scores": np.sort(np.asarray(calibration_scores, np.float64))}
    calibration |= {f"reference.{name}": np.asarray(values, np.float64) for name, values in reference.items()}
    contents = {
        MODEL: model,
        POSTERIOR: safetensors.numpy.save(posterior),
        CALIBRATION: safetensors.numpy.save(calibration),
    }
    files = {
        name: FileEntry(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data)) for name, data in contents.items()
    }
    for name, data in contents.items():
        write_file(folder / name, data)
    return reseal_manifest(folder, dataclasses.replace(manifest, files=files))


def reseal_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest alone, for instance with the verification filled in."""
    document = to_json(manifest)
    text = json.dumps({**document, SEAL: seal(document)}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_file(folder / MANIFEST, text.encode())
    return manifest


def seal(document: Mapping[str, Any]) -> str:
    """SHA-256 (hexadecimal) of the manifest's canonical JSON: keys sorted, no white space, ASCII, no seal."""
    plain = {name: value for name, value in document.items() if name != SEAL}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_bundle(
    out: Path | str,
    manifest: Manifest,
    *,
    model: bytes,
    scale_tril: Array,
    subnetwork_indices: Array,
    calibration_scores: Array,
    reference: Mapping[str, Array],
) -> Path:
    """Write a whole bundle to `out`, atomically: `out` holds all of it or what it held before."""
    with staged_bundle(Path(out)) as folder:
        seal_bundle(folder, manifest, model, scale_tril, subnetwork_indices, calibration_scores, reference)
    return Path(out)


# --------------------------------------------------------------------------- reading


def read_bundle(path: Path | str) -> Bundle:
    """Read and check a bundle; raise `BundleError` naming the file, what was found and the remedy.

    All files are opened through one handle on the folder, so that a bundle that is replaced meanwhile is read whole,
    the old one or the new one.
    """
    return with_folder(Path(path), _read_whole)


def read_manifest(path: Path | str) -> tuple[Manifest, str]:
    """The manifest of a bundle and the bundle's digest, its seal."""
    return with_folder(Path(path), _read_manifest)


def _read_whole(folder: Folder) -> Bundle:
    manifest, digest = _read_manifest(folder)
    _check_file_names(folder, manifest)
    contents = {name: _read_checked(folder, name, entry) for name, entry in manifest.files.items()}
    posterior = _tensors(folder.path / POSTERIOR, contents[POSTERIOR])
    calibration = _tensors(folder.path / CALIBRATION, contents[CALIBRATION])
    scale_tril, indices = _check_posterior(folder.path / POSTERIOR, posterior, manifest)
    scores, reference = _check_calibration(folder.path / CALIBRATION, calibration, manifest)
    return Bundle(
        path=folder.path,
        digest=digest,
        manifest=manifest,
        model=contents[MODEL],
        scale_tril=scale_tril,
        subnetwork_indices=indices,
        calibration_scores=scores,
        reference=reference,
    )


def _read_manifest(folder: Folder) -> tuple[Manifest, str]:
    file = folder.path / MANIFEST
    data = folder.read(MANIFEST, MAX_MANIFEST_BYTES)
    try:
        document = json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_object)
        stated = document.pop(SEAL, None) if isinstance(document, dict) else None
        manifest = manifest_from_json(document)
        found = seal(document)
    except ManifestError as error:
        raise BundleError(file, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(file, f"not valid JSON: {error}") from error
    if stated != found:
        raise BundleError(file, f"{SEAL}: found {stated!r:.100}, its content has {found}: the manifest was changed")
    return manifest, found


def _refuse_constant(name: str) -> float:
    raise ManifestError(f"found the number {name}, expected finite numbers")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys differ: of two values under one key, readers disagree which counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ManifestError("found a key twice in one object, expected each once")
    return found


def _check_file_names(folder: Folder, manifest: Manifest) -> None:
    named, allowed = set(manifest.files), REQUIRED_FILES | OPTIONAL_FILES
    file = folder.path / MANIFEST
    for name in sorted(named - allowed):
        raise BundleError(file, f"files: found the name {name!r:.100}, expected only {sorted(allowed)}")
    for name in sorted(REQUIRED_FILES - named):
        raise BundleError(file, f"files: {name!r} is not listed")
    for name in sorted(folder.names() - named - {MANIFEST}):
        remedy = "remove it, or copy the bundle anew"
        raise BundleError(folder.path / name, "extra file, not listed in the manifest", remedy)


def _read_checked(folder: Folder, name: str, entry: FileEntry) -> bytes:
    file, data = folder.path / name, folder.read(name, max(entry.bytes, 0))
    if len(data) != entry.bytes:
        raise BundleError(file, f"found {len(data)} bytes, expected {entry.bytes}: truncated or changed")
    found = hashlib.sha256(data).hexdigest()
    if found != entry.sha256:
        raise BundleError(file, f"found sha256 {found}, expected {entry.sha256:.64}: the file was changed")
    return data


def _tensors(file: Path, data: bytes) -> dict[str, Array]:
    try:
        return safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BundleError(file, f"not a safetensors file: {error}") from error


def _take(file: Path, tensors: dict[str, Array], name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    """Remove one tensor from `tensors`, checked for presence, type, shape (-1: any) and finiteness."""
    if name not in tensors:
        raise BundleError(file, f"tensor {name!r} is missing")
    array = tensors.pop(name)
    if array.dtype != np.dtype(dtype):
        raise BundleError(file, f"tensor {name!r}: found dtype {array.dtype}, expected {dtype}")
    fits = array.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits:
        raise BundleError(file, f"tensor {name!r}: found shape {array.shape}, expected {shape}")
    if not np.isfinite(array).all():
        raise BundleError(file, f"tensor {name!r}: found NaN or infinity, expected finite numbers")
    return array


def _refuse_rest(file: Path, tensors: dict[str, Array]) -> None:
    for name in sorted(tensors):
        raise BundleError(file, f"unexpected tensor {name!r:.100}")


def _check_posterior(file: Path, tensors: dict[str, Array], manifest: Manifest) -> tuple[Array, Array]:
    size = manifest.subnetwork_size
    packed = _take(file, tensors, "scale_tril_packed", "float32", (size * (size + 1) // 2,))
    indices = _take(file, tensors, "subnetwork_indices", "int64", (size,))
    _refuse_rest(file, tensors)
    scale_tril = unpack_lower_triangle(packed, size)
    if not (np.diagonal(scale_tril) > 0).all():
        raise BundleError(file, "scale_tril: found a diagonal entry that is not positive, expected a Cholesky factor")
    if (indices[1:] <= indices[:-1]).any() or indices[0] < 0 or indices[-1] >= manifest.parameter_count:
        raise BundleError(
            file, f"subnetwork_indices: expected strictly ascending positions below {manifest.parameter_count}"
        )
    return scale_tril, indices


def _check_calibration(file: Path, tensors: dict[str, Array], manifest: Manifest) -> tuple[Array, dict[str, Array]]:
    scores = _take(file, tensors, "scores", "float64", (manifest.calibration.examples,))
    if not len(scores) or (scores[1:] < scores[:-1]).any():
        raise BundleError(file, "scores: expected at least one score, in ascending order")
    names = [name for name in tensors if name.startswith("reference.")]
    levels = (len(REFERENCE_LEVELS),)
    reference = {name.removeprefix("reference."): _take(file, tensors, name, "float64", levels) for name in names}
    _refuse_rest(file, tensors)
    return scores, reference
