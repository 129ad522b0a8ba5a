"""The files of a cascade: the graph of its first stage, and the calibration scores of the cascade as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.format.calibration_tensors import (
    CalibrationTensors,
    calibration_from_bytes,
    calibration_to_bytes,
    check_outcomes,
)
from service.format.files import CASCADE_CALIBRATION, CASCADE_FILES, CASCADE_MODEL
from service.format.manifest import Manifest


@dataclass(frozen=True)
class CascadeFiles:
    """model: ONNX, inputs -> mean and variance of the first stage. calibration: of the cascade as a whole."""

    model: bytes
    calibration: CalibrationTensors


def cascade_names(manifest: Manifest) -> frozenset[str]:
    """The names of these files in a bundle with this manifest: both or none."""
    return frozenset[str]() if manifest.cascade is None else CASCADE_FILES


def check_cascade(cascade: CascadeFiles | None, manifest: Manifest) -> None:
    """`ValueError` where the manifest describes a cascade and there are no files for it, or the other way round."""
    if (cascade is None) != (manifest.cascade is None):
        found, stated = ("no" if part is None else "a" for part in (cascade, manifest.cascade))
        raise ValueError(f"cascade: found {found} cascade, expected {stated} cascade as in the manifest; give both")
    if cascade is not None and manifest.cascade is not None:
        check_outcomes(cascade.calibration.outcomes, manifest.cascade.calibration)


def cascade_to_bytes(cascade: CascadeFiles) -> dict[str, bytes]:
    """File name -> content."""
    return {CASCADE_MODEL: cascade.model, CASCADE_CALIBRATION: calibration_to_bytes(cascade.calibration)}


def cascade_from_bytes(folder: Path, contents: Mapping[str, bytes], manifest: Manifest) -> CascadeFiles | None:
    """The files in `contents`, checked; None where the manifest describes no cascade. `BundleError`."""
    if manifest.cascade is None:
        return None
    data, described = contents[CASCADE_CALIBRATION], manifest.cascade.calibration
    found = calibration_from_bytes(folder / CASCADE_CALIBRATION, data, manifest, described)
    return CascadeFiles(contents[CASCADE_MODEL], found)
