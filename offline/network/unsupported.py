"""What no fit can take, refused with the place in the documentation that says what is supported."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SUPPORTED = "docs/fitting.md#what-is-supported"
WRITE_OUT = (
    "expected a forward pass of operations that torch.func.jacrev takes, without torch.autograd or torch.func inside: "
    "write a gradient out"
)
# By a part of torch's message: what to do about a forward pass that fails.
FORWARD_REMEDIES = {
    'is missing the required "forward"': "give a module that computes, such as nn.Sequential(*layers)",
    "not compiled with CUDA": "leave .to('cuda') and .cuda() out of forward: the fit puts all on one device",
    "Expected all tensors to be on the same device": "leave .to(...) out of forward: the fit puts all on one device",
    "have the same dtype, but got Long": "give (inputs, targets) in this order, numbers as x.float()",
    "indices' to have one of the following scalar types": "give tokens as whole numbers, x.long()",
    "device-side assert": "fit with device='cpu', which says what it is, such as tokens beyond an nn.Embedding",
    **dict.fromkeys(
        ("index out of range in self", "i < index_size", "which is not in the valid range"),
        "give the nn.Embedding a row for each token, or leave out the tokens beyond",
    ),
}
IN_ONNX = (
    "Trees, and anything else that onnxruntime can run, are taken as ONNX: "
    "skl2onnx.to_onnx(model, X[:1].astype(numpy.float32)), onnxmltools.convert_lightgbm or convert_xgboost"
)
IMAGES = "give images as (channels, height, width), such as x.{} of a batch"
OF_IMAGES = {2: "reshape(-1, channels, height, width)", 3: "unsqueeze(1)", 4: "permute(0, 3, 1, 2)"}
# The same of derivatives.
REMEDIES = {
    "saved tensor hooks": "leave torch.utils.checkpoint out in eval mode: if self.training: x = checkpoint(layer, x)",
    "doesn't have storage": (
        f"{WRITE_OUT}; and without torch.nn.utils.rnn.pack_padded_sequence: give the padded sequence, and take the "
        "output at each last step by torch.gather"
    ),
}


def forward_remedy(error: Exception, dimensions: int) -> str | None:
    """What to do about a forward pass that failed on a batch of so many dimensions, where that is known."""
    if dimensions in OF_IMAGES and any(part in str(error) for part in ("channels, but got", "input to conv2d")):
        return IMAGES.format(OF_IMAGES[dimensions])
    return next((remedy for part, remedy in FORWARD_REMEDIES.items() if part in str(error)), None)


def one_line(error: Exception) -> str:
    """What an exception says, without its line breaks."""
    return " ".join(str(error).split())[:300]


class UnsupportedModelError(ValueError):
    """A model that cannot be used as it is."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem} (see {SUPPORTED})")


@contextmanager
def differentiated_for_the_first_time() -> Iterator[None]:
    """What torch raises inside is the model's doing: `UnsupportedModelError`. It may be any operation of its forward
    pass that has no derivative for one example alone."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        cause = one_line(error)
        remedy = next((remedy for part, remedy in REMEDIES.items() if part in cause), WRITE_OUT)
        raise UnsupportedModelError(f"model: cannot be differentiated for each example: {cause}; {remedy}") from error
