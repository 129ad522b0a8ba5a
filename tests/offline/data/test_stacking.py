"""Which example of a dataset makes no batch, wherever it is; an error of the dataset itself stays what it was."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from demur.offline.data.given import given_data

GOOD = (torch.ones(4), 1)
LEAVE_OUT = "expected a value; leave such examples out, or fill what is missing"
ODD: dict[str, tuple[Any, str]] = {
    "no target": ((torch.ones(4), None), f"found None in example 37 of the dataset, {LEAVE_OUT}"),
    "no input": ((None, 1), f"found None in example 37 of the dataset, {LEAVE_OUT}"),
    "no example": (None, f"found None in example 37 of the dataset, {LEAVE_OUT}"),
    "another shape": (
        (torch.ones(5), 1),
        r"found \(Tensor of shape \(5,\), a number\) as example 37 of the dataset, expected \(Tensor of shape \(4,\), "
        r"a number\) as before; resize, crop, pad",
    ),
    "no target at all": ((torch.ones(4),), r"found \(Tensor of shape \(4,\)\) as example 37 of the dataset"),
    "a set": ((torch.ones(4), {1}), "found set in example 37 of the dataset, expected tensors, arrays or numbers"),
}


class Examples(Dataset[Any]):
    def __init__(self, odd: object) -> None:
        self.odd = odd

    def __len__(self) -> int:
        return 60

    def __getitem__(self, place: int) -> Any:
        return self.odd if place == 37 else GOOD


class Stream(IterableDataset[Any]):
    def __init__(self, odd: object) -> None:
        self.odd = odd

    def __iter__(self) -> Any:
        return (self.odd if place == 37 else GOOD for place in range(60))


def read(dataset: Dataset[Any], **options: Any) -> None:
    list(given_data(DataLoader(dataset, 16, **options), "train_loader").pairs(torch.device("cpu")))


@pytest.mark.parametrize(("odd", "words"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("dataset", [Examples, Stream])
def test_the_odd_example_is_named(dataset: type[Examples | Stream], odd: object, words: str) -> None:
    with pytest.raises(ValueError, match=f"train_loader, batch 2: {words}"):
        read(dataset(odd))


def test_of_a_worker_too() -> None:
    with pytest.raises(ValueError, match="found None in example 37 of the dataset"):
        read(Examples((torch.ones(4), None)), num_workers=1)


def test_several_inputs_are_looked_into() -> None:
    class Named(Examples):
        def __getitem__(self, place: int) -> Any:
            return {"a": torch.ones(3), "b": None if place == 4 else torch.ones(2)}, 1

    with pytest.raises(ValueError, match="batch 0: found None in example 4 of the dataset"):
        read(Named(None))


def test_a_mistake_inside_the_dataset_keeps_its_traceback() -> None:
    class Broken(Examples):
        def __getitem__(self, place: int) -> Any:
            return torch.ones(4), place + "x"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        read(Broken(None))


def test_examples_that_are_odd_once_only_are_refused_with_what_torch_says() -> None:
    class Sometimes(Examples):
        first = True

        def __getitem__(self, place: int) -> Any:
            if place == 37 and self.first:
                self.first = False
                return torch.ones(5), 1
            return GOOD

    with pytest.raises(ValueError, match="batch 2: found examples that make no batch: stack expects each tensor"):
        read(Sometimes(None))
