"""The weights that may be chosen: all, or those of named modules."""

import difflib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..network.weights import Parameter, WeightLayout, parameter_owners

CLOSE_NAMES = 5


def candidate_positions(
    network: nn.Module,
    layout: WeightLayout,
    within: Sequence[str] | None,
    reached: frozenset[str] | None = None,
) -> Tensor:
    """Positions that may be chosen, (C,) int64 ascending.

    within: paths of modules, each with all its submodules ("layer4" holds "layer4.1.conv2"; "" is the whole network);
    None: everywhere. A tied parameter belongs to every module that holds it. reached: names of the parameters that the
    outputs depend on; None: all.

    Raises `ValueError` for a path that is no module or holds no trainable weight, and where the outputs depend on none.
    """
    names = set(module_parameters(network, layout, within, "within")) if within is not None else None
    effective = [p for p in layout.parameters if reached is None or p.name in reached]
    if names is not None and not any(p.name in names for p in effective):
        raise ValueError(
            f"within: found {', '.join(map(repr, within or ()))}, whose weights have no effect on the outputs; give "
            "other modules"
        )
    return positions_of([p for p in effective if names is None or p.name in names])


def module_parameters(network: nn.Module, layout: WeightLayout, paths: Sequence[str], option: str) -> list[str]:
    """Names of the trainable parameters of the modules at `paths` and below, in the layout's order.

    Raises `ValueError`, naming `option` and close names, for a path that is no module or holds nothing trainable.
    """
    check_names(paths, option, "paths of modules")
    modules = [path for path, _ in network.named_modules()]
    owners = parameter_owners(network)
    kept: set[str] = set()
    for path in paths:
        if path not in modules:
            raise unknown_name(path, option, "a module", [m for m in modules if m])
        inside = {p.name for p in layout.parameters if any(_below(place, path) for place, _ in owners[p.name])}
        if not inside:
            raise ValueError(f"{option}: found the module {path!r}, which holds no trainable weight; give another one")
        kept |= inside
    return [p.name for p in layout.parameters if p.name in kept]


def positions_of(parameters: Sequence[Parameter]) -> Tensor:
    """Every position of the parameters, (n,), in their order."""
    return torch.cat([torch.arange(p.offset, p.offset + p.size) for p in parameters])


def common(first: Tensor, second: Tensor) -> Tensor:
    """The positions of `first` (n,) that are in `second` (m,), in the order of `first`."""
    if not len(first) or not len(second):
        return first[:0]
    held = torch.zeros(1 + int(max(first.max(), second.max())), dtype=torch.bool, device=first.device)
    held[second.to(first.device)] = True
    return first[held[first]]


def check_names(names: object, option: str, expected: str) -> None:
    """`ValueError` for anything but a list of at least one string."""
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    if not is_list or not names or not all(isinstance(name, str) for name in names):  # type: ignore[attr-defined]
        raise ValueError(f"{option}: found {names!r}, expected a list of {expected}")


def unknown_name(name: str, option: str, expected: str, known: Sequence[str]) -> ValueError:
    """An error that lists the known names that look like `name`, or the first few."""
    close = difflib.get_close_matches(name, known, CLOSE_NAMES, cutoff=0.5) or list(known)[:CLOSE_NAMES]
    return ValueError(f"{option}: found {name!r}, expected {expected} of the network such as {', '.join(close)}")


def _below(place: str, path: str) -> bool:
    """Whether the module `place` is the module `path` or inside it: whole components count."""
    return not path or place == path or place.startswith(path + ".")
