"""Write and read a bundle: the contract between the offline job and the service.

Reader and writer stand side by side so that they cannot drift: those of the whole bundle here, those of single files in
`demur.service.format`. A bundle is untrusted input: every file is checked against the manifest before it is parsed,
it is parsed from the very bytes that were checked, and nothing is ever unpickled.
`service/BUNDLE.md` is the normative text.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .format.calibration_tensors import (
    CalibrationTensors,
    calibration_from_bytes,
    calibration_to_bytes,
    check_scoring,
)
from .format.files import (
    CALIBRATION,
    MANIFEST,
    MODEL,
    OPTIONAL_FILES,
    POSTERIOR,
    README,
    REPORT,
    REQUIRED_FILES,
    SIGNATURE,
    TOKENIZER,
    UNLISTED_FILES,
    BundleError,
    Folder,
    check_destination,
    check_writable,
    is_ignored,
    staged_bundle,
    with_folder,
    write_file,
)
from .format.manifest import FORMAT_VERSION, Manifest
from .format.manifest_input import ImagePreprocessing, InputPart, InputRange, InputSpec, InputText
from .format.manifest_json import check_input
from .format.manifest_parts import (
    AddedWeights,
    Calibration,
    FileEntry,
    Gate,
    Graph,
    InputNoise,
    Outcomes,
    ParameterSlice,
    Posterior,
    Prior,
    RejectedShare,
    ScorePart,
    Selection,
    SetScore,
    Tried,
    Verification,
)
from .format.model_card import model_card
from .format.posterior_tensors import (
    check_posterior,
    pack_lower_triangle,
    posterior_from_bytes,
    posterior_to_bytes,
    unpack_lower_triangle,
)
from .format.rules import ManifestError
from .format.seal import MAX_MANIFEST_BYTES, SEAL, manifest_from_bytes, manifest_to_bytes, seal
from .format.signature import MAX_FILE_BYTES as MAX_SIGNATURE_BYTES
from .format.signature import Signature, Verify, signature_from_bytes
from .maths.posterior_factor import CholeskyPosterior

__all__ = [
    "CALIBRATION",
    "MANIFEST",
    "MAX_MANIFEST_BYTES",
    "MAX_SIGNATURE_BYTES",
    "MODEL",
    "OPTIONAL_FILES",
    "POSTERIOR",
    "README",
    "REPORT",
    "REQUIRED_FILES",
    "SEAL",
    "SIGNATURE",
    "TOKENIZER",
    "AddedWeights",
    "Bundle",
    "BundleError",
    "Calibration",
    "CalibrationTensors",
    "CholeskyPosterior",
    "FileEntry",
    "Gate",
    "Graph",
    "ImagePreprocessing",
    "InputNoise",
    "InputPart",
    "InputRange",
    "InputSpec",
    "InputText",
    "Manifest",
    "ManifestError",
    "Outcomes",
    "ParameterSlice",
    "Posterior",
    "Prior",
    "RejectedShare",
    "ScorePart",
    "Selection",
    "SetScore",
    "Signature",
    "Tried",
    "Verification",
    "Verify",
    "check_destination",
    "check_input",
    "check_writable",
    "is_bundle_at",
    "pack_lower_triangle",
    "read_bundle",
    "read_head",
    "read_manifest",
    "reseal_manifest",
    "seal",
    "seal_bundle",
    "staged_bundle",
    "unpack_lower_triangle",
    "write_bundle",
]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Bundle:
    """A bundle read and checked.

    `posterior` gives the variance of the outputs; `subnetwork_indices` (S,) int64 ascending positions in the flattened
    trainable weights; `calibration` has the scores of the held-out examples; `digest` is the manifest's seal, and
    through the hashes in it the whole bundle's; `manifest_bytes` is manifest.json as it is on disk, which `signature`,
    if there is one, covers; `tokenizer` is tokenizer.json, where the input is made of texts.
    """

    path: Path
    digest: str
    manifest: Manifest
    model: bytes
    posterior: CholeskyPosterior
    subnetwork_indices: Array
    calibration: CalibrationTensors
    manifest_bytes: bytes
    signature: Signature | None
    tokenizer: bytes | None = None

    @property
    def manifest_sha256(self) -> str:
        """SHA-256 of manifest.json as it is on disk, hexadecimal. Unlike `digest`, it changes with white space."""
        return hashlib.sha256(self.manifest_bytes).hexdigest()


# --------------------------------------------------------------------------- writing


def seal_bundle(
    folder: Path,
    manifest: Manifest,
    model: bytes,
    posterior: CholeskyPosterior,
    subnetwork_indices: Array,
    calibration: CalibrationTensors,
    report: bytes | None = None,
    tokenizer: bytes | None = None,
) -> Manifest:
    """Write every file of a bundle into an existing folder, the manifest last. Returns it with the files' hashes.

    tokenizer: tokenizer.json of an input that is made of texts. `ValueError` where the posterior or the score is not
    that that the manifest describes, and for a tokenizer that it does not describe, or none that it does.
    """
    check_posterior(posterior, manifest)
    check_scoring(calibration.scoring, manifest.calibration)
    if (tokenizer is None) != (manifest.input.text is None):
        found = "none" if tokenizer is None else "one"
        raise ValueError(f"tokenizer: found {found}, expected one where the manifest has input.text, and else none")
    files = {
        MODEL: _write(folder, MODEL, model),
        POSTERIOR: _write(folder, POSTERIOR, posterior_to_bytes(posterior, subnetwork_indices)),
        CALIBRATION: _write(folder, CALIBRATION, calibration_to_bytes(calibration)),
    }
    if tokenizer is not None:
        files[TOKENIZER] = _write(folder, TOKENIZER, tokenizer)
    return reseal_manifest(folder, dataclasses.replace(manifest, files=files), report)


def _write(folder: Path, name: str, data: bytes) -> FileEntry:
    write_file(folder / name, data)
    return FileEntry(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def reseal_manifest(folder: Path, manifest: Manifest, report: bytes | None = None) -> Manifest:
    """Write the manifest again, for instance with the verification filled in, README.md of it, and `report` as
    report.html.

    It is written in the current version of the format. The old signature is removed first: a manifest never stands
    beside the signature of another.
    """
    (folder / SIGNATURE).unlink(missing_ok=True)
    listed = {} if report is None else {REPORT: _write(folder, REPORT, report)}
    manifest = dataclasses.replace(manifest, files={**manifest.files, **listed}, format_version=FORMAT_VERSION)
    write_file(folder / README, model_card(manifest).encode())
    write_file(folder / MANIFEST, manifest_to_bytes(manifest))
    return manifest


def write_bundle(
    out: Path | str,
    manifest: Manifest,
    *,
    model: bytes,
    posterior: CholeskyPosterior,
    subnetwork_indices: Array,
    calibration: CalibrationTensors,
    report: bytes | None = None,
    tokenizer: bytes | None = None,
) -> Path:
    """Write a whole bundle to `out`, atomically: `out` holds all of it or what it held before."""
    with staged_bundle(Path(out)) as folder:
        seal_bundle(folder, manifest, model, posterior, subnetwork_indices, calibration, report, tokenizer)
    return Path(out)


# --------------------------------------------------------------------------- reading


def read_bundle(path: Path | str, verify: Verify | None = None) -> Bundle:
    """Read and check a bundle; raise `BundleError` naming the file, what was found and the remedy.

    `verify` checks the signature before anything that it covers is parsed. All files are opened through one handle on
    the folder: a bundle that is replaced meanwhile is read whole, either the old or the new one.
    """
    return with_folder(Path(path), lambda folder: _read_whole(folder, verify))


def read_manifest(path: Path | str) -> tuple[Manifest, str]:
    """The manifest of a bundle, and the bundle's digest."""
    return with_folder(Path(path), _read_manifest)


def read_head(path: Path, verify: Verify | None = None) -> Manifest:
    """The manifest in a folder that may hold no more than it and its signature yet; the names that it lists are
    checked, and by `verify` the signature. Raises `BundleError`.
    """
    return with_folder(path, lambda folder: _read_head(folder, verify).manifest)


def is_bundle_at(path: Path, manifest_sha256: str, files: Mapping[str, FileEntry]) -> bool:
    """Whether `path` still holds the bundle that was read: False where its manifest.json has another SHA-256.

    Raises `BundleError` where the manifest is the same and one of its `files` is not. Nothing is parsed.
    """
    return with_folder(path, lambda folder: _is_bundle_in(folder, manifest_sha256, files))


def _is_bundle_in(folder: Folder, manifest_sha256: str, files: Mapping[str, FileEntry]) -> bool:
    if folder.hash(MANIFEST, MAX_MANIFEST_BYTES)[1] != manifest_sha256:
        return False
    for name, entry in files.items():
        _check_hash(folder.path / name, entry, *folder.hash(name, max(entry.bytes, 0)))
    return True


@dataclass(frozen=True)
class _Head:
    """What all else hangs on: the manifest, as it is on disk and parsed, and its signature."""

    manifest_bytes: bytes
    signature: Signature | None
    manifest: Manifest
    digest: str


def _read_head(folder: Folder, verify: Verify | None) -> _Head:
    """Checked by `verify` before it is parsed, and for the names that it lists."""
    manifest_bytes, signature = folder.read(MANIFEST, MAX_MANIFEST_BYTES), _read_signature(folder)
    if verify is not None:
        verify(folder.path, manifest_bytes, signature)
    manifest, digest = manifest_from_bytes(folder.path / MANIFEST, manifest_bytes)
    _check_listed_names(folder.path / MANIFEST, manifest)
    return _Head(manifest_bytes, signature, manifest, digest)


def _read_whole(folder: Folder, verify: Verify | None) -> Bundle:
    head = _read_head(folder, verify)
    manifest = head.manifest
    _refuse_extra_files(folder, manifest)
    contents = {name: _read_checked(folder, name, entry) for name, entry in manifest.files.items()}
    # `pop` frees the posterior's bytes before its matrix is made: both are large.
    posterior, indices = posterior_from_bytes(folder.path / POSTERIOR, contents.pop(POSTERIOR), manifest)
    return Bundle(
        path=folder.path,
        digest=head.digest,
        manifest=manifest,
        model=contents[MODEL],
        posterior=posterior,
        subnetwork_indices=indices,
        calibration=calibration_from_bytes(folder.path / CALIBRATION, contents.pop(CALIBRATION), manifest),
        manifest_bytes=head.manifest_bytes,
        signature=head.signature,
        tokenizer=contents.get(TOKENIZER),
    )


def _read_signature(folder: Folder) -> Signature | None:
    if SIGNATURE not in folder.names():
        return None
    return signature_from_bytes(folder.path / SIGNATURE, folder.read(SIGNATURE, MAX_SIGNATURE_BYTES))


def _read_manifest(folder: Folder) -> tuple[Manifest, str]:
    return manifest_from_bytes(folder.path / MANIFEST, folder.read(MANIFEST, MAX_MANIFEST_BYTES))


def _check_listed_names(file: Path, manifest: Manifest) -> None:
    """Whether manifest.json, `file`, lists what a bundle has, and nothing else."""
    named, allowed = set(manifest.files), REQUIRED_FILES | OPTIONAL_FILES
    for name in sorted(named - allowed):
        raise BundleError(file, f"files: found the name {name!r:.100}, expected only {sorted(allowed)}")
    required = REQUIRED_FILES if manifest.input.text is None else REQUIRED_FILES | {TOKENIZER}
    for name in sorted(required - named):
        raise BundleError(file, f"files: {name!r} is not listed")
    if TOKENIZER in named - required:
        raise BundleError(file, f"files: found {TOKENIZER!r}, expected none: input.text is null")


def _refuse_extra_files(folder: Folder, manifest: Manifest) -> None:
    named = set(manifest.files)
    for name in sorted(name for name in folder.names() - named - UNLISTED_FILES if not is_ignored(name)):
        remedy = "remove it, or copy the bundle again"
        raise BundleError(folder.path / name, "extra file, not listed in the manifest", remedy)


def _read_checked(folder: Folder, name: str, entry: FileEntry) -> bytes:
    data = folder.read(name, max(entry.bytes, 0))
    _check_hash(folder.path / name, entry, len(data), hashlib.sha256(data).hexdigest())
    return data


def _check_hash(file: Path, entry: FileEntry, size: int, sha256: str) -> None:
    if size != entry.bytes:
        raise BundleError(file, f"found {size} bytes, expected {entry.bytes}: truncated or changed")
    if sha256 != entry.sha256:
        raise BundleError(file, f"found sha256 {sha256}, expected {entry.sha256:.64}: the file was changed")
