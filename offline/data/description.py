"""What the service is told of inputs and outputs: the input spec, and names."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor

from demur.service.bundle import InputPart, InputSpec, ManifestError, check_input

from ..config import FitConfig
from ..section import Section
from .typical_rows import Rows


@dataclass(frozen=True)
class Description:
    """The input spec, the names of classes, labels or values, if there are any, warnings about the data, candidates for
    usual rows, and tokenizer.json where the input is made of texts."""

    spec: InputSpec
    names: tuple[str, ...] | None
    doubts: tuple[str, ...] = ()
    typical: Rows = ()
    tokenizer: bytes | None = None

    def section(self, config: FitConfig) -> Section:
        """In the manifest."""
        named = {"name": config.name, "version": config.version, "task": config.likelihood}
        return Section({**named, "input": self.spec, "class_names": self.names}, warnings=self.doubts)


def check_input_spec(
    spec: InputSpec | None,
    example: Tensor,
    columns: tuple[str, ...] | None = None,
    parts: tuple[InputPart, ...] | None = None,
) -> InputSpec:
    """The user's input spec, checked as a reader of the bundle would and against the data; without one, plain arrays
    of the data's shape. Features without names are called like the columns of a data frame. parts: several
    inputs, which are packed in the order of these."""
    shape = tuple(example.shape[1:])
    if parts is not None:
        if spec is not None:
            raise ValueError(f"input_spec: found one for a model with {len(parts)} inputs, expected None")
        return InputSpec(shape=shape, parts=parts)
    dtype: Literal["float32", "int64"] = "float32" if example.is_floating_point() else "int64"
    if spec is None:
        return InputSpec(shape=shape, dtype=dtype, feature_names=columns)
    check_is_spec(spec)
    try:
        spec = check_input(spec)
    except ManifestError as error:
        raise ValueError(f"input_spec: {error}") from None
    if spec.shape != shape or spec.dtype != dtype:
        raise ValueError(
            f"input_spec: found {spec.shape} {spec.dtype}, expected {shape} {dtype} as in the training data"
        )
    return spec if columns is None or spec.feature_names else replace(spec, feature_names=columns)


def check_is_spec(spec: object) -> None:
    """`TypeError` for anything but an `InputSpec` or None."""
    if spec is not None and not isinstance(spec, InputSpec):
        example = "InputSpec(shape=(3, 32, 32), image=ImagePreprocessing(mode='RGB'))"
        raise TypeError(f"input_spec: found {type(spec).__name__}, expected an InputSpec, such as {example}")


def listed_names(names: Any) -> tuple[str, ...]:
    """A list of names, of NumPy or pandas too, in the order of the classes; a set has none. Raises `ValueError`."""
    given = names.tolist() if hasattr(names, "tolist") else names
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"class_names: found {type(given).__name__}, expected a list of names")
    listed = tuple(str(name) for name in given if name not in (None, ""))
    if len(listed) != len(given):
        raise ValueError(f"class_names: found {list(given)!r:.200}, expected a name for each class")
    return listed


def check_class_names(names: Any, outputs: int) -> tuple[str, ...] | None:
    """K different names, or None."""
    if names is None:
        return None
    checked = listed_names(names)
    if len(checked) != outputs or len(set(checked)) != outputs:
        raise ValueError(f"class_names: found {list(checked)!r:.200}, expected {outputs} names, all different")
    return checked
