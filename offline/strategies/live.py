"""Weights that live: those with curvature on the training data.

A weight without any (behind a ReLU that never fires) has the prior's variance, the largest there is, and changes no
prediction (Daxberger et al. 2021, appendix: "dead ReLUs").
"""

import torch
from torch import Tensor

from offline.strategies.context import SelectionContext
from offline.strategies.streaming import curvature_diagonal

# A weight whose curvature is below this share of the largest carries none that float32 derivatives can show.
DEAD_SHARE = 1e-12


def is_live(curvature: Tensor) -> Tensor:
    """Which entries of a curvature (C,) >= 0 are not nothing, (C,) bool."""
    return curvature > DEAD_SHARE * curvature.max()


def eligible(context: SelectionContext, live_only: bool) -> tuple[Tensor, int | None]:
    """The candidates to choose among, and how many dead ones were left out (None: not asked).

    `live_only` costs one pass over the training data for the diagonal of the curvature.
    """
    check_live_only(live_only)
    if not live_only:
        return context.candidates, None
    _, positions, dead = split_live(context, curvature_diagonal(context, context.candidates))
    return positions, dead


def check_live_only(live_only: object, always: str | None = None) -> None:
    """`ValueError` for anything but a bool, and for False where a strategy (`always`) cannot do without."""
    if not isinstance(live_only, bool):
        raise ValueError(f"selection_options['live_only']: found {live_only!r}, expected True or False")
    if always is not None and not live_only:
        raise ValueError(
            f"selection_options['live_only']: found False, expected True for selection={always!r}: weights without "
            "curvature would come first and change no prediction; leave the option out"
        )


def split_live(context: SelectionContext, curvature: Tensor) -> tuple[Tensor, Tensor, int]:
    """Of the candidates with this curvature (C,): which live (C,) bool, their positions, and how many do not."""
    live = is_live(curvature)
    return live, context.candidates[live], int(torch.count_nonzero(~live))
