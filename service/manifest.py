"""The manifest of a bundle: frozen dataclasses and the strict reader that fills them from JSON.

Pure standard library, so that the contract between the offline job and the service can be read and checked
anywhere. `service/BUNDLE.md` is the normative text.
"""

import dataclasses
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

FORMAT_MAJOR = 1
FORMAT_MINOR = 0
FORMAT_VERSION = f"{FORMAT_MAJOR}.{FORMAT_MINOR}"

Task = Literal["classification", "regression"]
# Numbers of preprocessing and noise stay far from where float32 overflows.
LARGEST, SMALLEST = 1e30, 1e-30
MAX_DEPTH = 32


class ManifestError(ValueError):
    """A manifest field is missing, unknown, or holds a value of the wrong type."""


@dataclass(frozen=True)
class ImagePreprocessing:
    """How a decoded image becomes one input: `(pixel * scale - mean) / std`, channels first.

    `mode` is Pillow's name of the colour space (one or three channels); `resize` allows images of another
    size to be scaled (bilinear) to the input's height and width, otherwise they are refused.
    """

    mode: Literal["L", "RGB"] = "L"
    scale: float = 1.0 / 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    resize: bool = True


@dataclass(frozen=True)
class InputSpec:
    """What the network takes: the shape of ONE example (no batch dimension) and how to obtain it.

    `feature_names` labels the entries of a flat input for people; `image` is present where the service may
    decode images, and then `shape` is (channels, height, width).
    """

    shape: tuple[int, ...]
    dtype: Literal["float32", "int64"] = "float32"
    feature_names: tuple[str, ...] | None = None
    image: ImagePreprocessing | None = None

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape):
            raise ManifestError(f"input.shape: found {self.shape}, expected sizes of at least 1")
        if self.feature_names is not None and (len(self.feature_names),) != self.shape:
            raise ManifestError(
                f"input.feature_names: found {len(self.feature_names)} names, expected a flat input of as many "
                f"entries, found shape {self.shape}"
            )
        if self.image is not None:
            self._check_image(self.image)

    def _check_image(self, image: ImagePreprocessing) -> None:
        channels = 1 if image.mode == "L" else 3
        if len(self.shape) != 3 or self.shape[0] != channels:
            raise ManifestError(
                f"input.image.mode: found {image.mode!r} with input shape {self.shape}, expected "
                f"({channels}, height, width)"
            )
        if self.dtype != "float32":
            raise ManifestError(f"input.dtype: found {self.dtype!r}, expected 'float32' for images")
        for name, values in (("mean", image.mean), ("std", image.std)):
            if len(values) not in (1, channels):
                raise ManifestError(f"input.image.{name}: found {len(values)} values, expected 1 or {channels}")
        if any(not SMALLEST <= value <= LARGEST for value in image.std):
            raise ManifestError(f"input.image.std: found {image.std}, expected positive values")
        if any(abs(value) > LARGEST for value in (*image.mean, image.scale)):
            raise ManifestError(
                f"input.image: found mean {image.mean} and scale {image.scale}, expected at most {LARGEST:g}"
            )


@dataclass(frozen=True)
class ParameterSlice:
    """One trainable tensor: where its entries stand in the flattened weights, and how many were chosen."""

    name: str
    shape: tuple[int, ...]
    offset: int
    chosen: int


@dataclass(frozen=True)
class Selection:
    """How the subnetwork was chosen. `dead_weights` counts weights without curvature that were left out."""

    strategy: str
    options: dict[str, Any]
    seed: int
    dead_weights: int | None
    parameters: tuple[ParameterSlice, ...]


@dataclass(frozen=True)
class Prior:
    """Prior precision: `precision` is lambda, `used` is lambda_S that stands in the posterior precision."""

    method: Literal["fixed", "gridsearch", "marglik"]
    precision: float
    scaling: Literal["subnetwork", "none"]
    used: float


@dataclass(frozen=True)
class Posterior:
    """The factor: `jitter` is what had to be added to the diagonal before it could be factored (0: nothing)."""

    kind: Literal["cholesky"]
    size: int
    jitter: float


@dataclass(frozen=True)
class Calibration:
    """The rejection rule. `threshold` is the largest score still accepted."""

    score: Literal["predictive_entropy", "epistemic_std"]
    examples: int
    false_reject_rate: float
    threshold: float


@dataclass(frozen=True)
class Verification:
    """Largest relative errors of the serving code against torch in float64, on `examples` inputs."""

    examples: int
    tolerance: float
    mean_error: float
    jacobian_error: float
    variance_error: float


@dataclass(frozen=True)
class FileEntry:
    """Size and SHA-256 (hexadecimal) of one file of the bundle."""

    sha256: str
    bytes: int


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
        for name, holds, expected in self._rules():
            if not holds:
                found = getattr(self, name)
                raise ManifestError(f"{name}: found {found!r:.100}, expected {expected}")

    def _rules(self) -> tuple[tuple[str, bool, str], ...]:
        classification = self.task == "classification"
        names = self.class_names
        rate = self.calibration.false_reject_rate
        score = "predictive_entropy" if classification else "epistemic_std"
        return (
            ("name", 0 < len(self.name) <= 200 and "/" not in self.name, "1 to 200 characters without '/'"),
            ("version", 0 < len(self.version) <= 100 and "/" not in self.version, "1 to 100 characters without '/'"),
            ("outputs", self.outputs >= (2 if classification else 1), "at least 1 (2 for classification)"),
            ("class_names", names is None or len(names) == self.outputs, f"null or {self.outputs} names"),
            ("class_names", names is None or len(set(names)) == len(names), "names that differ"),
            ("subnetwork_size", 1 <= self.subnetwork_size <= self.parameter_count, "1 to parameter_count"),
            ("posterior", self.posterior.size == self.subnetwork_size, "a size equal to subnetwork_size"),
            ("prior", self.prior.used > 0 and self.prior.precision > 0, "positive precisions"),
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


def to_json(value: Any) -> Any:
    """Plain JSON data of a manifest dataclass."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def manifest_from_json(data: Any) -> Manifest:
    """Fill a `Manifest` from parsed JSON.

    A field of the wrong type, a missing field, and (up to this reader's minor version) an unknown field raise
    `ManifestError`; fields added by a later minor version are ignored.
    """
    if not isinstance(data, dict) or data.get("format") != "probity-bundle":
        raise ManifestError("format: expected 'probity-bundle' at the top of the manifest; is this a bundle?")
    newer = _check_version(data.get("format_version"))
    manifest: Manifest = _convert(data, Manifest, "", ignore_unknown=newer)
    return manifest


def _check_version(version: Any) -> bool:
    parts = version.split(".") if isinstance(version, str) else []
    if len(parts) != 2 or not all(part.isdecimal() and part.isascii() and len(part) < 6 for part in parts):
        raise ManifestError(f"format_version: found {version!r:.100}, expected '{FORMAT_VERSION}'")
    major, minor = (int(part) for part in parts)
    if major != FORMAT_MAJOR:
        raise ManifestError(
            f"format_version: found {version!r:.100}, this release reads major version {FORMAT_MAJOR}; "
            "install a release that reads it, or fit the bundle again with this one"
        )
    return minor > FORMAT_MINOR


def _convert(value: Any, kind: Any, where: str, *, ignore_unknown: bool) -> Any:
    """`value` as the annotated type `kind`, or a `ManifestError` that names the place `where`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _convert_object(value, typing.cast(type, kind), where, ignore_unknown=ignore_unknown)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _convert(value, inner, where, ignore_unknown=ignore_unknown)
    if origin is Literal:
        if value in arguments and isinstance(value, str):
            return value
        raise ManifestError(f"{where}: found {value!r:.100}, expected one of {', '.join(map(repr, arguments))}")
    if origin is tuple and isinstance(value, list):
        return tuple(
            _convert(item, arguments[0], f"{where}[{i}]", ignore_unknown=ignore_unknown) for i, item in enumerate(value)
        )
    if origin is dict and isinstance(value, dict):
        return {
            _convert_scalar(key, str, where): _convert(
                item, arguments[1], f"{where}.{key:.100}", ignore_unknown=ignore_unknown
            )
            for key, item in value.items()
        }
    return _convert_scalar(value, kind, where)


def _convert_scalar(value: Any, kind: Any, where: str) -> Any:
    if kind is Any:
        _check_plain(value, where, MAX_DEPTH)
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number and -1e300 < value < 1e300 and math.isfinite(value):
        return float(value)
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str) and _is_text(value):
        return value
    name = getattr(typing.get_origin(kind) or kind, "__name__", str(kind))
    raise ManifestError(f"{where}: found {value!r:.100}, expected {name}")


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: JSON may spell lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_plain(value: Any, where: str, depth: int) -> None:
    """Refuse what could be read but not be answered: infinities, lone surrogates, nesting without end."""
    if isinstance(value, dict | list) and depth > 0:
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_plain(item, where, depth - 1)
        return
    is_text = isinstance(value, str) and _is_text(value)
    is_finite = isinstance(value, float) and math.isfinite(value)
    is_whole = value is None or (isinstance(value, int) and abs(value) < 2**63)
    if not (is_text or is_finite or is_whole):
        raise ManifestError(f"{where}: found {value!r:.100}, expected plain JSON data")


def _convert_object(value: Any, kind: type, where: str, *, ignore_unknown: bool) -> Any:
    if not isinstance(value, dict):
        raise ManifestError(f"{where or 'manifest'}: found {value!r:.100}, expected an object")
    hints = typing.get_type_hints(kind)
    for name in value:
        if name not in hints and not ignore_unknown:
            raise ManifestError(f"{where}.{name:.100}".lstrip(".") + ": unknown field")
    missing = [name for name in hints if name not in value]
    if missing:
        raise ManifestError(f"{where}.{missing[0]}".lstrip(".") + ": missing field")
    converted = {
        name: _convert(value[name], hint, f"{where}.{name}".lstrip("."), ignore_unknown=ignore_unknown)
        for name, hint in hints.items()
    }
    return kind(**converted)
