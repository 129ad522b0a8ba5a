"""The files of a cascade: the graph of its first stage, and the calibration scores of the cascade as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from service.format.files import CASCADE_CALIBRATION, CASCADE_FILES, CASCADE_MODEL
from service.format.manifest import Manifest
from service.format.tensors import calibration_from_bytes, calibration_to_bytes

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CascadeFiles:
    """model: ONNX, inputs -> mean and variance of the first stage. scores (n,) float64 ascending: of the cascade as a
    whole on the calibration data; reference: quantity -> its values at `REFERENCE_LEVELS` there."""

    model: bytes
    scores: Array
    reference: Mapping[str, Array]


def cascade_names(manifest: Manifest) -> frozenset[str]:
    """The names of these files in a bundle with this manifest: both or none."""
    return frozenset[str]() if manifest.cascade is None else CASCADE_FILES


def check_cascade(cascade: CascadeFiles | None, manifest: Manifest) -> None:
    """`ValueError` where the manifest describes a cascade and there are no files for it, or the other way round."""
    if (cascade is None) != (manifest.cascade is None):
        found, stated = ("no" if part is None else "a" for part in (cascade, manifest.cascade))
        raise ValueError(f"cascade: found {found} cascade, expected {stated} cascade as in the manifest; give both")


def cascade_to_bytes(cascade: CascadeFiles) -> dict[str, bytes]:
    """File name -> content."""
    return {
        CASCADE_MODEL: cascade.model,
        CASCADE_CALIBRATION: calibration_to_bytes(cascade.scores, cascade.reference),
    }


def cascade_from_bytes(folder: Path, contents: Mapping[str, bytes], manifest: Manifest) -> CascadeFiles | None:
    """The files in `contents`, checked; None where the manifest describes no cascade. `BundleError`."""
    if manifest.cascade is None:
        return None
    file, examples = folder / CASCADE_CALIBRATION, manifest.cascade.calibration.examples
    scores, reference = calibration_from_bytes(file, contents[CASCADE_CALIBRATION], examples)
    return CascadeFiles(contents[CASCADE_MODEL], scores, reference)
