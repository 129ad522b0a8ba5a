"""Foreign data: inputs unlike the training data, from which a score is to tell usual ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from demur.service.bundle import InputPart

from ..config import COMPARED_SCORES, FitConfig
from .agreement import check_inputs_like
from .loaders import Batches, checked_batches

MOST_EXAMPLES = 2000


def check_foreign(config: FitConfig) -> None:
    """`ValueError` where foreign data would change nothing."""
    if config.score not in COMPARED_SCORES:
        raise ValueError(
            f"foreign_loader: found foreign data with score={config.score!r}, which they would not change; expected "
            "score='fused' or 'auto', or no foreign data"
        )


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
