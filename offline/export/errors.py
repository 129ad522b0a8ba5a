"""Why a model cannot be exported, and the remedy."""

import re

from ..network.unsupported import SUPPORTED
from .failing_layer import FailingLayer

OPERATOR = re.compile(r"(?:aten|prims|onnx)(?:\.|::)\w+|op='(?:aten|prims)\.\w+")
UNSUPPORTED = re.compile(r"No ONNX function found|no fake impl or Meta kernel|not supported|Unsupported", re.IGNORECASE)
COMPLEX = re.compile(r"complex", re.IGNORECASE)
# What an error's message tells of its cause, and the remedy, in which {name} is the layer at fault.
REMEDIES = (
    (
        re.compile(r"PackedSequence|pack_padded_sequence|zeros\(\): argument 'size' failed to unpack"),
        "a sequence that torch.nn.utils.rnn.pack_padded_sequence has packed for {name} has no equivalent in ONNX: "
        "give the padded one, and take the output at each last step by torch.gather; other weights do not help",
    ),
    (
        re.compile(r"data-dependent|DataDependent|_local_scalar_dense|nonzero|unbacked|aten\.equal", re.IGNORECASE),
        "an `if`, a loop or an index in {name} depends on the values of its input, which a graph cannot hold: "
        "compute both sides and take torch.where, or a mask; other weights do not help",
    ),
    (
        re.compile(r"\.(numpy|tolist)\(\)"),
        "{name} leaves torch while it predicts (.numpy(), .tolist()): write it with torch's operations; other "
        "weights do not help",
    ),
    (
        re.compile(
            r"is invalid for input of size|counts the batch twice|expected a multiple|Constraints violated"
            r"|attempting to (expand|broadcast) a dimension",
            re.IGNORECASE,
        ),
        "{name} takes the number of examples for a constant, or mixes examples: take x.shape[0] where it is "
        "needed, not len(x), and torch.nn layers in place of a torch.autograd.Function; other weights do not help",
    ),
)
REPLACED_BY = {
    "CrossMapLRN2d": "nn.LocalResponseNorm with the same arguments computes the same",
    "FractionalMaxPool2d": "its windows are random, also in eval mode: use nn.AdaptiveMaxPool2d",
    "FractionalMaxPool3d": "its windows are random, also in eval mode: use nn.AdaptiveMaxPool3d",
}


class ExportError(RuntimeError):
    """The model, or its backward pass, cannot be expressed in ONNX.

    layer, kind: path and class of the layer at fault ("" and the model's class for its own forward); stage: "forward"
    or "backward"; operator: the one that has no equivalent, None where it is none; cause: the first error's message;
    remedy: what to do. All None where the message says everything.
    """

    def __init__(
        self,
        message: str,
        *,
        layer: str | None = None,
        kind: str | None = None,
        stage: str | None = None,
        operator: str | None = None,
        cause: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.layer, self.kind, self.stage = layer, kind, stage
        self.operator, self.cause, self.remedy = operator, cause, remedy


def first_cause(error: BaseException) -> BaseException:
    """The innermost error: the exporter wraps the operator at fault in pages of advice."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error


def one_line(error: BaseException) -> str:
    """The class of an error and the beginning of its message, without torch's advice on how to log more."""
    message = " ".join(str(error).split()).partition(" (unhinted")[0].partition(" For more information")[0]
    return f"{type(error).__name__}: {message[:300]}"


def operator_of(error: BaseException) -> str | None:
    """The operator that an error names, such as "aten.sinc"."""
    match = OPERATOR.search(str(error))
    return match.group().replace("op='", "").replace("::", ".") if match else None


def export_error(error: BaseException, layer: FailingLayer, touched: str) -> ExportError:
    """From the first cause and the layer at fault; touched: the parameters whose weights were chosen."""
    cause, operator = one_line(error), operator_of(error)
    remedy = remedy_for(cause, layer, operator)
    reason = f"operator {operator} has no equivalent in ONNX" if operator and UNSUPPORTED.search(cause) else cause
    return ExportError(
        f"the model could not be exported to ONNX: {layer}: {reason} (remedy: {remedy}; see {SUPPORTED}"
        + (f"; weights were chosen in: {touched})" if touched else ")"),
        layer=layer.path,
        kind=layer.kind,
        stage=layer.stage,
        operator=operator,
        cause=cause,
        remedy=remedy,
    )


def remedy_for(cause: str, layer: FailingLayer, operator: str | None) -> str:
    """The remedy for a cause: choosing other weights helps only where the backward pass fails."""
    name = repr(layer.path) if layer.path else "the model's forward"
    if layer.kind in REPLACED_BY:
        return f"replace {name}: {REPLACED_BY[layer.kind]}"
    owner, parametrised, weight = layer.path.partition(".parametrizations.")
    if parametrised:
        return (
            f"make what {owner!r} computes of its {weight.partition('.')[0]} permanent: "
            f"torch.nn.utils.parametrize.remove_parametrizations(layer, {weight.partition('.')[0]!r})"
        )
    for told, remedy in REMEDIES:
        if told.search(cause):
            return remedy.format(name=name)
    if COMPLEX.search(cause) or (operator or "").startswith("aten._fft"):
        return (
            f"ONNX has hardly any operators for complex numbers: compute the transform in {name} by a product with "
            "matrices of cosines and sines, or before the model; other weights do not help"
        )
    if layer.stage == "backward":
        return (
            f"choose weights of layers that come after {name} (selection='last-layer', or `within`), so "
            "that no derivative has to cross it, or replace it by operations of torch that ONNX has"
        )
    return f"replace the operation in {name} by others of torch that ONNX has; other weights do not help"
