"""The manifest of a bundle: everything about it but its tensors. `service/BUNDLE.md` is the normative text."""

from dataclasses import dataclass, field
from typing import Any, Literal

from service.format.manifest_input import LARGEST, SMALLEST, ImagePreprocessing, InputRange, InputSpec
from service.format.manifest_json import ManifestError, Reading, check_fields, convert, to_json
from service.format.manifest_parts import (
    Calibration,
    Candidate,
    FileEntry,
    ParameterSlice,
    Posterior,
    Prior,
    Selection,
    Tried,
    Verification,
)

__all__ = [
    "FORMAT_MAJOR",
    "FORMAT_MINOR",
    "FORMAT_VERSION",
    "Calibration",
    "Candidate",
    "FileEntry",
    "ImagePreprocessing",
    "InputRange",
    "InputSpec",
    "Manifest",
    "ManifestError",
    "ParameterSlice",
    "Posterior",
    "Prior",
    "Selection",
    "Task",
    "Tried",
    "Verification",
    "manifest_from_json",
    "to_json",
]

FORMAT_MAJOR = 1
FORMAT_MINOR = 2
FORMAT_VERSION = f"{FORMAT_MAJOR}.{FORMAT_MINOR}"

MAX_OUTPUTS, MAX_CLASSES = 2**18, 2**15  # a service keeps a time series for each class

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Manifest:
    """Everything about a bundle but its tensors. Field by field: `service/BUNDLE.md`."""

    name: str
    version: str
    task: Task
    input: InputSpec
    outputs: int
    class_names: tuple[str, ...] | None
    parameter_count: int
    subnetwork_size: int
    selection: Selection
    prior: Prior
    posterior: Posterior
    sigma_noise: float | None
    temperature: float
    link: Literal["probit", "gaussian"]
    opset: int
    calibration: Calibration
    verification: Verification | None
    metrics: dict[str, float] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    files: dict[str, FileEntry] = field(default_factory=dict)
    format: Literal["probity-bundle"] = "probity-bundle"
    format_version: str = FORMAT_VERSION

    def __post_init__(self) -> None:
        check_fields("", self, *self._rules())

    def _rules(self) -> tuple[tuple[str, bool, str], ...]:
        classification = self.task == "classification"
        names, most = self.class_names, MAX_CLASSES if classification else MAX_OUTPUTS
        rate = self.calibration.false_reject_rate
        score = "predictive_entropy" if classification else "epistemic_std"
        return (
            ("name", 0 < len(self.name) <= 200 and "/" not in self.name, "1 to 200 characters without '/'"),
            ("version", 0 < len(self.version) <= 100 and "/" not in self.version, "1 to 100 characters without '/'"),
            ("outputs", self.outputs >= (2 if classification else 1), "at least 1 (2 for classification)"),
            ("outputs", self.outputs <= most, f"at most {most}"),
            ("class_names", names is None or len(names) == self.outputs, f"null or {self.outputs} names"),
            ("class_names", names is None or len(set(names)) == len(names), "names that differ"),
            ("subnetwork_size", 1 <= self.subnetwork_size <= self.parameter_count, "1 to parameter_count"),
            ("posterior", self.posterior.size == self.subnetwork_size, "a size equal to subnetwork_size"),
            ("prior", self.prior.used > 0 and self.prior.precision > 0, "positive precisions"),
            (
                "prior",
                self.posterior.kind == "cholesky" or SMALLEST <= self.prior.used <= LARGEST,
                f"used from {SMALLEST:g} to {LARGEST:g} for a posterior of kind 'low-rank'",
            ),
            ("temperature", 1e-6 <= self.temperature <= 1e6, "a number from 1e-6 to 1e6"),
            ("link", self.link == ("probit" if classification else "gaussian"), "the link of the task"),
            ("sigma_noise", (self.sigma_noise is None) == classification, "a number for regression, else null"),
            (
                "sigma_noise",
                self.sigma_noise is None or 0 < self.sigma_noise <= LARGEST,
                f"a positive number up to {LARGEST:g}",
            ),
            ("calibration", 0 < rate < 1, "a false_reject_rate between 0 and 1"),
            ("calibration", self.calibration.examples >= 1, "at least 1 example"),
            ("calibration", self.calibration.score == score, f"the score of the task, {score!r}"),
        )


def manifest_from_json(data: Any) -> Manifest:
    """Fill a `Manifest` from parsed JSON.

    A field of the wrong type, a missing field, and (up to this reader's minor version) an unknown field raise
    `ManifestError`; fields added by a later minor version are ignored, and fields added since an earlier one take
    their defaults.
    """
    if not isinstance(data, dict) or data.get("format") != "probity-bundle":
        raise ManifestError("format: expected 'probity-bundle' at the top of the manifest; is this a bundle?")
    minor = _minor_version(data.get("format_version"))
    manifest: Manifest = convert(data, Manifest, "", Reading(written=minor, known=FORMAT_MINOR))
    return manifest


def _minor_version(version: Any) -> int:
    parts = version.split(".") if isinstance(version, str) else []
    if len(parts) != 2 or not all(part.isdecimal() and part.isascii() and len(part) < 6 for part in parts):
        raise ManifestError(f"format_version: found {version!r:.100}, expected '{FORMAT_VERSION}'")
    major, minor = (int(part) for part in parts)
    if major != FORMAT_MAJOR:
        raise ManifestError(
            f"format_version: found {version!r:.100}, this release reads major version {FORMAT_MAJOR}; "
            "install a release that reads it, or fit the bundle again with this one"
        )
    return minor
