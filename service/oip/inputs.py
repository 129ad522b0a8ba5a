"""An input tensor -> one array (B, *input_shape) as the network takes it."""

from service.bundle import InputSpec
from service.inputs import InputError, InputLimits, array_from_array, array_from_files, array_from_images
from service.oip.datatypes import BYTES, Array
from service.oip.document import shown
from service.oip.errors import RequestError
from service.oip.request import INPUT
from service.oip.tensor import Tensor

IMAGE_SHAPES = "the shape (batch,) or (batch, 1): an encoded image file in each element"


def array_of(tensor: Tensor, spec: InputSpec, limits: InputLimits) -> Array:
    """Numbers of any datatype, converted to the network's; or BYTES, each element an encoded image file."""
    if tensor.datatype == BYTES:
        return _images(tensor, spec, limits)
    return array_from_array(tensor.array(), spec, limits.rows(spec), INPUT)


def _images(tensor: Tensor, spec: InputSpec, limits: InputLimits) -> Array:
    if spec.image is None:
        expected = "numbers, such as FP32: the bundle has no image input spec"
        raise RequestError(f"{tensor.place}.datatype", BYTES, expected)
    if tensor.shape[1:] not in ((), (1,)):
        raise RequestError(f"{tensor.place}.shape", f"{list(tensor.shape)!s:.100}", IMAGE_SHAPES)
    try:
        if tensor.data is None:
            return array_from_files(tensor.elements(limits.rows(spec)), spec, limits)
        return array_from_images(_texts(tensor), spec, limits)
    except InputError as error:
        raise _renamed(error) from None


def _texts(tensor: Tensor) -> list[str]:
    """In JSON, a file is base64 text."""
    texts = tensor.values()
    for i, text in enumerate(texts):
        if type(text) is not str:
            raise RequestError(f"{tensor.place}.data[{i}]", shown(text), "a base64 text")
    return texts


def _renamed(error: InputError) -> InputError:
    """The native API calls images by other names than this one."""
    for name in ("files", "images"):
        if error.field.startswith(name):
            return type(error)(INPUT + error.field.removeprefix(name), error.found, error.expected)
    return error
