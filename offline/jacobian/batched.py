"""torch.func.vmap, without a warning where it goes one by one through an operator that it has no rule for."""

import warnings
from collections.abc import Callable
from typing import Any

from torch.func import vmap


def batched(function: Callable[..., Any], chunk_size: int | None = None) -> Callable[..., Any]:
    """`vmap(function)`. That a recurrent layer takes longer is nothing that the user could mend."""
    over = vmap(function, chunk_size=chunk_size)

    def run(*args: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
            return over(*args)

    return run
