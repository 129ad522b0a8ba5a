"""`demur export --standalone`: write a bundle as one ONNX file."""

from dataclasses import dataclass
from pathlib import Path

import onnx

from demur.service.bundle import read_bundle
from demur.service.format.files import misplaced_file, replace_file
from demur.service.inference.predictor import Predictor

from .errors import StandaloneError
from .model import standalone_model
from .verify import verify_standalone

SUFFIX = ".onnx"


@dataclass(frozen=True)
class StandaloneFile:
    """A file that was written: its size, and its inputs and outputs with types and shapes, by name."""

    path: Path
    bytes: int
    inputs: dict[str, str]
    outputs: dict[str, str]


def export_standalone(bundle: Path, out: Path, *, force: bool = False) -> StandaloneFile:
    """Write the bundle at `bundle` to the file `out`, atomically; `force` replaces a file that exists.

    The model is compared with the predictor before it is written. Raises `BundleError` and `StandaloneError`; then
    nothing is written.
    """
    check_destination(out, force=force)
    content = read_bundle(bundle)
    predictor = Predictor(content)
    model = standalone_model(content)
    data = model.SerializeToString(deterministic=True)
    verify_standalone(data, predictor)
    check_destination(out, force=force)
    _write(out, data)
    inputs, outputs = (
        {value.name: described(value) for value in values} for values in (model.graph.input, model.graph.output)
    )
    return StandaloneFile(out, len(data), inputs, outputs)


def check_destination(out: Path, *, force: bool) -> None:
    """`StandaloneError` for another suffix, a folder, an existing file without `force`, and a place inside a bundle."""
    if (problem := misplaced_file(out)) is not None:
        raise StandaloneError(f"{out}: {problem}")
    if out.suffix != SUFFIX:
        raise StandaloneError(f"{out}: found the suffix {out.suffix!r}, expected {SUFFIX!r}")
    if out.exists() and not force:
        raise StandaloneError(f"{out}: exists; nothing was overwritten, choose another name or add --force")


def described(value: onnx.ValueInfoProto) -> str:
    """Type and shape of a graph's input or output, such as "float32 (batch, 10)"."""
    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return f"{dtype} ({', '.join(size.dim_param or str(size.dim_value) for size in tensor.shape.dim)})"


def _write(out: Path, data: bytes) -> None:
    """Write atomically; the folder is made where there is none."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, data)
    except OSError as error:
        raise StandaloneError(f"{out}: cannot be written ({error.strerror or error})") from None
