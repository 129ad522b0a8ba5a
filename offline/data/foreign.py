"""Foreign data: inputs unlike the training data, of which the report says what share is rejected."""

from collections.abc import Sequence

import torch
from torch import Tensor

from demur.service.bundle import InputPart

from .agreement import check_inputs_like
from .loaders import Batches, checked_batches

MOST_EXAMPLES = 2000


def collect_foreign(
    loader: Batches, example: Tensor, device: torch.device, of: Sequence[InputPart] | None = None
) -> Tensor:
    """The first inputs (n, *input_shape) of the loader, at most 2,000; `ValueError` for others than `example` is.

    of: the parts of several inputs, as for `checked_batches`.
    """
    parts, count = list[Tensor](), 0
    for inputs, _ in checked_batches(loader, "foreign_loader", device, of):
        check_inputs_like(inputs, example, "foreign_loader")
        parts.append(inputs)
        count += len(inputs)
        if count >= MOST_EXAMPLES:
            break
    return torch.cat(parts)[:MOST_EXAMPLES]
