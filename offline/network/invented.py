"""Where inputs that nobody gave may be tried: on a GPU an index beyond the end of a table ends all further work."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

LOOKUPS = frozenset({"embedding", "_embedding_bag", "index", "index_select", "gather", "take"})


def for_invented(network: nn.Module, usual: Tensor) -> Callable[[Tensor], Tensor]:
    """What computes the outputs: the network itself, or on a GPU, where it looks values up for `usual` inputs, a copy
    on the CPU.

    On the CPU a look-up beyond a table is an `IndexError`. On a GPU it is an assertion of the device, after which the
    process can use it no more.
    """
    if usual.device.type == "cpu" or not looks_up(network, usual[:1]):
        return network
    own = copy.deepcopy(network).cpu()
    return lambda inputs: own(inputs.cpu()).to(inputs.device)


def looks_up(network: nn.Module, inputs: Tensor) -> bool:
    """Whether the forward pass reads entries of a tensor by their number."""
    watch = _SeesLookups()
    with torch.no_grad(), watch:
        network(inputs.clone())
    return watch.seen


class _SeesLookups(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: bool = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.seen = self.seen or function.overloadpacket.__name__ in LOOKUPS
        return function(*args, **(kwargs or {}))
