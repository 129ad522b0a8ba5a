"""The random generators of what users hand over: whoever reads a loader that shuffles draws from its generator."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

P = ParamSpec("P")
T = TypeVar("T")


def leaves_generators(function: Callable[P, T]) -> Callable[P, T]:
    """The function, after which the generators of its arguments are as they were: those of loaders, and of samplers
    and datasets within."""

    @functools.wraps(function)
    def wrapped(*given: P.args, **named: P.kwargs) -> T:
        before = [(one, _state(one)) for one in _generators([*given, *named.values()])]
        try:
            return function(*given, **named)
        finally:
            for one, state in before:
                if isinstance(one, torch.Generator):
                    one.set_state(state)
                else:
                    one.bit_generator.state = state

    return wrapped


def seed_generators(seed: int, batches: Any) -> None:
    """Begin torch's own generator and those within `batches` anew: a loader that shuffles gives each pass the same
    order, in every process, and again after an interruption."""
    torch.manual_seed(seed)
    for one in _generators([batches]):
        if isinstance(one, torch.Generator):
            one.manual_seed(seed)
        else:
            one.bit_generator.state = type(one.bit_generator)(seed).state


def _state(generator: Any) -> Any:
    return generator.get_state() if isinstance(generator, torch.Generator) else generator.bit_generator.state


def _generators(given: list[Any]) -> Iterator[Any]:
    seen = set[int]()
    while given:
        one = given.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Generator | np.random.Generator):
            yield one
        elif isinstance(one, DataLoader | Dataset | Sampler):
            given.extend(vars(one).values())
