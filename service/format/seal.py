"""The manifest and its seal as the bytes of manifest.json, and back with all checks."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .files import BundleError
from .json_names import NameTwice, unique
from .manifest import Manifest
from .manifest_json import manifest_from_json, to_json
from .rules import ManifestError

SEAL = "sha256"
MAX_MANIFEST_BYTES = 16 * 2**20


def seal(document: Mapping[str, Any]) -> str:
    """SHA-256 (hexadecimal) of the manifest's canonical JSON: keys sorted, no white space, ASCII, no seal."""
    plain = {name: value for name, value in document.items() if name != SEAL}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def manifest_to_bytes(manifest: Manifest) -> bytes:
    """The content of manifest.json, sealed; `ManifestError` for what a reader would refuse."""
    document = to_json(manifest)
    manifest_from_json(document)
    text = json.dumps({**document, SEAL: seal(document)}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    return text.encode()


def manifest_from_bytes(file: Path, data: bytes) -> tuple[Manifest, str]:
    """The manifest in `data` and its seal; `BundleError` naming `file` where it is malformed or was changed."""
    try:
        document = json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=unique)
        stated = document.pop(SEAL, None) if isinstance(document, dict) else None
        manifest = manifest_from_json(document)
        found = seal(document)
    except NameTwice as error:
        raise BundleError(file, f"found {error}, expected each name once") from error
    except ManifestError as error:
        raise BundleError(file, str(error)) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(file, f"not valid JSON: {error}") from error
    if stated != found:
        raise BundleError(file, f"{SEAL}: found {stated!r:.100}, its content has {found}: the manifest was changed")
    return manifest, found


def _refuse_constant(name: str) -> float:
    raise ManifestError(f"found the number {name}, expected finite numbers")
