"""Why the examples of a dataset make no batch: which of them holds something else than the others."""

import numbers
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import Dataset


def stacking_problem(loader: object, error: Exception) -> str | None:
    """What is wrong with which example, where the error was raised while examples were made a batch; None for an error
    of the dataset itself. Reads the dataset again until the first odd example."""
    raised_in = "".join(traceback.format_tb(error.__traceback__))
    if not any("_utils/collate.py" in text.replace("\\", "/") for text in (raised_in, str(error))):
        return None
    first: str | None = None
    for place, example in enumerate(_examples(getattr(loader, "dataset", None))):
        if odd := [part for part in _parts(example) if not _stacks(part)]:
            return f"found {_named(odd[0])} in example {place} of the dataset, expected {_wanted(odd[0])}"
        kind = _named(example)
        if first is not None and kind != first:
            remedy = "resize, crop, pad or cut them to one shape in the dataset"
            return f"found {kind} as example {place} of the dataset, expected {first} as before; {remedy}"
        first = kind
    return f"found examples that make no batch: {str(error).strip().splitlines()[-1]:.200}"


def _examples(dataset: Any) -> Iterator[Any]:
    if isinstance(dataset, Dataset) and hasattr(dataset, "__len__"):
        return (dataset[place] for place in range(len(dataset)))
    return iter(dataset if hasattr(dataset, "__iter__") else ())


def _parts(example: Any) -> Iterator[Any]:
    """What tuples, lists and mappings hold at last."""
    if isinstance(example, Mapping):
        example = list(example.values())
    if not isinstance(example, tuple | list):
        yield example
        return
    for part in example:
        yield from _parts(part)


def _stacks(part: Any) -> bool:
    return isinstance(part, numbers.Real | str | bytes) or (hasattr(part, "__array__") and hasattr(part, "shape"))


def _wanted(part: Any) -> str:
    if part is None:
        return "a value; leave such examples out, or fill what is missing"
    remedy = "torch.as_tensor(numpy.array(image))" if "PIL" in type(part).__module__ else "torch.as_tensor(x)"
    return f"tensors, arrays or numbers; make them in the dataset, as by {remedy}"


def _named(part: Any) -> str:
    """The kind, such as "(Tensor of shape (3, 8, 8), a number)"."""
    if isinstance(part, Mapping):
        return f"{{{', '.join(f'{key!r}: {_named(value)}' for key, value in part.items())}}}"
    if isinstance(part, tuple | list):
        return f"({', '.join(map(_named, part))})"
    if isinstance(part, numbers.Real):
        return "a number"
    if part is None:
        return "None"
    shape = f" of shape {tuple(part.shape)}" if _stacks(part) and hasattr(part, "shape") else ""
    return f"{type(part).__name__}{shape}"
