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
    "channels, but got": "give images as (channels, height, width), such as x.permute(0, 3, 1, 2) of a batch",
}
# The same of derivatives.
REMEDIES = {
    "saved tensor hooks": "leave torch.utils.checkpoint out in eval mode: if self.training: x = checkpoint(layer, x)",
    "doesn't have storage": (
        f"{WRITE_OUT}; and without torch.nn.utils.rnn.pack_padded_sequence: give the padded sequence, and take the "
        "output at each last step by torch.gather"
    ),
}


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
        cause = " ".join(str(error).split())[:200]
        remedy = next((remedy for part, remedy in REMEDIES.items() if part in cause), WRITE_OUT)
        raise UnsupportedModelError(f"model: cannot be differentiated for each example: {cause}; {remedy}") from error
