"""What no fit can take, refused with the place in the documentation that says what is supported."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SUPPORTED = "docs/fitting.md#what-is-supported"


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
        raise UnsupportedModelError(
            f"model: cannot be differentiated for each example: {cause}; expected a forward pass of operations that "
            "torch.func.jacrev takes, without torch.autograd or torch.func inside: write a gradient out"
        ) from error
