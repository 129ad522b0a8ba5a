"""Input tensors -> one array (B, *input_shape), or the image files or texts in it."""

from collections.abc import Sequence

import numpy as np

from ..bundle import InputSpec
from ..codec.arrays import InputLimits, array_from_array
from ..codec.encoded_images import ImageFiles, ImageTexts
from ..codec.images import check_images
from ..codec.plain_texts import PlainTexts
from ..format.manifest_input import InputPart
from ..format.text import suggestion
from ..inference.parts import PartsError, packed
from .datatypes import BYTES, Array
from .errors import RequestError
from .parsing import shown
from .schemas import INPUT
from .tensor import Tensor

IMAGE_SHAPES = "the shape (batch,) or (batch, 1): an encoded image file in each element"


Undecoded = ImageFiles | ImageTexts | PlainTexts


def input_of(tensors: Sequence[Tensor], spec: InputSpec, limits: InputLimits) -> Array | Undecoded:
    """The tensors as one array of the network's datatype; elements of BYTES are images or texts, not decoded yet."""
    if spec.text is not None and len(tensors) == 1 and tensors[0].datatype == BYTES:
        return _plain_texts(tensors[0], spec, limits)
    if spec.parts is not None:
        return _several(tensors, spec.parts, spec, limits)
    for tensor in tensors:
        if tensor.name != INPUT:
            raise RequestError(f"{tensor.place}.name", shown(tensor.name), f"one input, named {INPUT!r}")
    (tensor,) = tensors
    if tensor.datatype == BYTES:
        return _images(tensor, spec, limits)
    return array_from_array(tensor.array(), spec, limits.rows(spec), INPUT)


def _several(tensors: Sequence[Tensor], parts: Sequence[InputPart], spec: InputSpec, limits: InputLimits) -> Array:
    """Inputs by name, as the network takes them together, (B, F) float32."""
    rows, known, arrays = limits.rows(spec), {part.name: part for part in parts}, {}
    for tensor in tensors:
        part = known.get(tensor.name)
        if part is None:
            expected = f"one of {', '.join(map(repr, known))}{suggestion(tensor.name, known)}"
            raise RequestError(f"{tensor.place}.name", shown(tensor.name), expected)
        if tensor.datatype == BYTES:
            raise RequestError(f"{tensor.place}.datatype", BYTES, "numbers, such as FP32")
        values = tensor.array()
        values = values.astype(np.int64) if values.dtype.kind == "b" else values
        arrays[tensor.name] = array_from_array(values, part.alone, rows, tensor.name)
    try:
        return packed(arrays, parts, "inputs")
    except PartsError as error:
        raise RequestError(error.field, error.found, error.expected) from None


def _plain_texts(tensor: Tensor, spec: InputSpec, limits: InputLimits) -> PlainTexts:
    """The elements of a tensor (batch,) or (batch, 1), UTF-8; raises `RequestError` and `InputError`."""
    if tensor.name != INPUT:
        raise RequestError(f"{tensor.place}.name", shown(tensor.name), f"{INPUT!r}, of texts")
    if tensor.shape[1:] not in ((), (1,)):
        raise RequestError(f"{tensor.place}.shape", tensor.shape_text, "(batch,) or (batch, 1): a text an element")
    if tensor.data is None:
        elements = tensor.elements(limits.rows(spec))
        try:
            texts = [element.decode() for element in elements]
        except UnicodeDecodeError as error:
            raise RequestError(f"{tensor.place}.data", f"{error.object[:40]!r}", "texts in UTF-8") from None
    else:
        texts = _texts(tensor, "a text")
    found = PlainTexts(texts, INPUT)
    found.check(spec, limits)
    return found


def _images(tensor: Tensor, spec: InputSpec, limits: InputLimits) -> ImageFiles | ImageTexts:
    if spec.image is None:
        expected = "numbers, such as FP32: the bundle has no image input spec"
        raise RequestError(f"{tensor.place}.datatype", BYTES, expected)
    if tensor.shape[1:] not in ((), (1,)):
        raise RequestError(f"{tensor.place}.shape", f"{list(tensor.shape)!s:.100}", IMAGE_SHAPES)
    rows = limits.rows(spec)
    if tensor.data is None:
        return ImageFiles(tensor.elements(rows), INPUT)
    texts = _texts(tensor, "a base64 text")
    check_images(INPUT, len(texts), spec, rows)
    return ImageTexts(texts, INPUT)


def _texts(tensor: Tensor, expected: str) -> list[str]:
    """The elements of JSON, in which a file is base64 text."""
    texts = tensor.values()
    for i, text in enumerate(texts):
        if type(text) is not str:
            raise RequestError(f"{tensor.place}.data[{i}]", shown(text), expected)
    return texts
