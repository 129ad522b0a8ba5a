"""Batches checked: what is refused and how it is named, what is converted, and chunks that fit in memory."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from demur.offline.data.given import Given, Like, given_data
from demur.offline.runtime.arrays import in_chunks

CPU = torch.device("cpu")
GOOD = (torch.zeros(2, 3), torch.tensor([0, 1]))


def read(loader: Any) -> list[tuple[Tensor, Tensor]]:
    return list(Given("train_loader", loader).pairs(CPU))


BAD_BATCHES = {
    "tensor alone": (torch.zeros(2, 3), "found Tensor, expected a pair of tensors"),
    "mapping": ({"x": torch.zeros(2, 3)}, "found dict of 'x', expected a pair"),
    "three tensors": ((*GOOD, torch.zeros(2)), "found tuple of Tensor, Tensor, Tensor"),
    "one tensor": ((torch.zeros(2, 3),), "found tuple of Tensor"),
    "nothing": ((), "found tuple of nothing"),
    "list targets": ((torch.zeros(2, 3), [0, 1]), "found tuple of Tensor, list"),
    "lengths": ((torch.zeros(3, 3), GOOD[1]), r"inputs \(3, 3\) and targets \(2,\), expected equal lengths"),
    "scalar inputs": ((torch.tensor(1.0), GOOD[1]), r"found inputs \(\)"),
    "scalar targets": ((torch.zeros(2, 3), torch.tensor(1)), r"targets \(\)"),
    "NaN": ((torch.tensor([[math.nan, 0, 0], [0, 0, 0]]), GOOD[1]), "found NaN or infinity in the inputs"),
    "infinity": ((torch.tensor([[0, 0, 0], [0, 0, -math.inf]]), GOOD[1]), "found NaN or infinity in the inputs"),
    "NaN target": ((torch.zeros(2, 3), torch.tensor([1.0, math.nan])), "found NaN or infinity in the targets"),
    "infinite targets": ((torch.zeros(2, 3), torch.full((2, 1), math.inf)), "found NaN or infinity in the targets"),
    "float64 beyond float32": (
        (torch.full((2, 3), 1e300, dtype=torch.float64), GOOD[1]),
        "found NaN or infinity in the inputs",
    ),
    "bool": ((torch.zeros(2, 3, dtype=torch.bool), GOOD[1]), "inputs of dtype torch.bool, expected floating"),
    "uint8": ((torch.zeros(2, 3, dtype=torch.uint8), GOOD[1]), "inputs of dtype torch.uint8"),
    "complex": ((torch.zeros(2, 3, dtype=torch.complex64), GOOD[1]), "inputs of dtype torch.complex64"),
    "shape": ((torch.zeros(2, 4), GOOD[1]), r"found inputs of shape \(4,\), expected \(3,\) as before"),
    "axes": ((torch.zeros(2, 3, 1), GOOD[1]), r"found inputs of shape \(3, 1\), expected \(3,\)"),
    "kind": ((torch.zeros(2, 3, dtype=torch.int64), GOOD[1]), "found inputs of .*int64, expected .*float32"),
}


@pytest.mark.parametrize(("batch", "message"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_bad_batch_is_named_with_its_number(batch: Any, message: str) -> None:
    batches = Given("train_loader", [GOOD, batch]).pairs(CPU)
    next(batches)
    with pytest.raises(ValueError, match=f"train_loader, batch 1: .*{message}"):
        next(batches)


@pytest.mark.parametrize("loader", [[], [(torch.zeros(0, 3), torch.zeros(0))]], ids=["no batch", "empty batch"])
def test_no_example_is_an_error(loader: list[Any]) -> None:
    with pytest.raises(ValueError, match="train_loader: found no example, expected at least one"):
        read(loader)


def test_empty_batches_are_left_out() -> None:
    empty = (torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64))
    found = read([empty, GOOD, empty, GOOD, empty])
    assert [len(inputs) for inputs, _ in found] == [2, 2]


def test_an_empty_batch_does_not_settle_the_shape() -> None:
    assert len(read([(torch.zeros(0), torch.zeros(0)), GOOD])) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floating_inputs_become_float32(dtype: torch.dtype) -> None:
    ((inputs, _),) = read([(torch.tensor([[0.5, -2.0]], dtype=dtype), torch.tensor([0]))])
    assert inputs.dtype == torch.float32
    assert inputs.tolist() == [[0.5, -2.0]]


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64])
def test_tokens_become_int64(dtype: torch.dtype) -> None:
    ((inputs, _),) = read([(torch.tensor([[5, -2]], dtype=dtype), torch.tensor([0]))])
    assert inputs.dtype == torch.int64
    assert inputs.tolist() == [[5, -2]]


def test_targets_pass_as_they_are() -> None:
    targets = torch.tensor([1.5, -2.0], dtype=torch.float64)
    ((_, found),) = read([(torch.zeros(2, 3), targets)])
    assert found.dtype == torch.float64
    assert torch.equal(found, targets)


def test_a_list_is_as_good_as_a_tuple() -> None:
    assert len(read([list(GOOD)])) == 1


def test_the_callers_tensors_are_not_changed() -> None:
    inputs = torch.full((2, 3), 0.1, dtype=torch.float64)
    read([(inputs, GOOD[1])])
    assert inputs.dtype == torch.float64
    assert inputs.tolist() == [[0.1] * 3] * 2


# --------------------------------------------------------------------------- loaders


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter([(torch.zeros(3), torch.tensor(0))])


@pytest.mark.parametrize(
    "loader",
    [[GOOD], (GOOD,), DataLoader(TensorDataset(*GOOD)), DataLoader(Stream())],
    ids=["list", "tuple", "loader", "stream"],
)
def test_what_can_be_read_again_is_accepted(loader: Any) -> None:
    assert given_data(loader, "train_loader").batches is loader
    assert len(read(loader)) == len(read(loader))


@pytest.mark.parametrize(
    "loader", [iter([GOOD]), (batch for batch in [GOOD]), zip([1], [2], strict=True)], ids=["list", "generator", "zip"]
)
def test_what_can_be_read_only_once_is_refused(loader: Any) -> None:
    with pytest.raises(TypeError, match=r"train_loader: found an iterator .* only once.* wrap it in list"):
        given_data(loader, "train_loader")


@pytest.mark.parametrize("loader", [None, 3, lambda: [GOOD]], ids=["None", "number", "function"])
def test_what_is_no_iterable_is_refused(loader: Any) -> None:
    with pytest.raises(TypeError, match=r"calibration_loader: found \w+, expected an iterable of \(inputs, targets\)"):
        given_data(loader, "calibration_loader")


# --------------------------------------------------------------------------- chunks


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 20), st.integers(1, 25))
def test_chunks_hold_every_example_once_in_order(examples: int, rows: int) -> None:
    inputs, targets = torch.arange(2 * examples).reshape(examples, 2), torch.arange(examples)
    chunks = list(in_chunks(inputs, targets, rows))
    assert all(1 <= len(x) == len(y) <= rows for x, y in chunks)
    assert len(chunks) == math.ceil(examples / rows)
    assert torch.equal(torch.cat([x for x, _ in chunks]), inputs)
    assert torch.equal(torch.cat([y for _, y in chunks]), targets)


# --------------------------------------------------------------------------- passes


def batches_of(*lengths: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.zeros(n, 3), torch.zeros(n)) for n in lengths]


def test_equal_passes_are_handed_on_and_counted() -> None:
    given = Given("train_loader", [])
    assert given.examples is None
    for lengths in ((3, 4, 2), (9,), (1,) * 9):
        given.batches = batches_of(*lengths)
        assert [len(x) for x, _ in given.pairs(CPU)] == list(lengths)
        assert given.examples == 9


@pytest.mark.parametrize(
    ("later", "found"), [((3, 4), "found 7 examples, expected 9"), ((3, 4, 3, 5), "found 10 examples or more, exp")]
)
def test_another_number_of_examples_is_an_error(later: tuple[int, ...], found: str) -> None:
    given = Given("train_loader", batches_of(3, 4, 2))
    list(given.pairs(CPU))
    given.batches = batches_of(*later)
    with pytest.raises(ValueError, match=f"train_loader: {found}.*the same data each time.*list"):
        list(given.pairs(CPU))
    assert given.examples == 9


def test_a_pass_that_is_left_early_does_not_count() -> None:
    given = Given("train_loader", batches_of(3, 4))
    next(given.pairs(CPU))
    assert given.examples is None
    given.batches = batches_of(5, 5)
    assert len(list(given.pairs(CPU))) == 2


def test_a_loader_that_drops_examples_later_is_found_out() -> None:
    """A sampler that forgets: the second pass of the same loader object is shorter."""

    class Forgetful:
        def __init__(self) -> None:
            self.left = 4

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            self.left -= 1
            return iter([GOOD] * self.left)

    given = Given("train_loader", Forgetful())
    list(given.pairs(CPU))
    with pytest.raises(ValueError, match="found 4 examples, expected 6 as in the first pass"):
        list(given.pairs(CPU))


# --------------------------------------------------------------------------- beside other data


def test_inputs_are_like_those_of_other_data() -> None:
    like = Like((3,), torch.float32, of="train_data()")
    assert len(list(Given("data", [GOOD]).pairs(CPU, like))) == 1
    for inputs, found in ((torch.zeros(2, 4), r"shape \(4,\) and .*float32"), (torch.ones(2, 3).long(), "and .*int64")):
        with pytest.raises(
            ValueError, match=rf"^data: found inputs of .*{found}, expected \(3,\) and .* as in train_data"
        ):
            list(Given("data", [(inputs, GOOD[1])]).pairs(CPU, like))


def test_so_many_inputs_are_read_and_no_more() -> None:
    class Endless:
        read = 0

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            while True:
                self.read += 1
                yield torch.full((300, 3), float(self.read)), torch.zeros(300)

    endless = Endless()
    found = Given("foreign_loader", endless).some_inputs(2000, CPU, Like((3,), torch.float32))
    assert found.shape == (2000, 3)
    assert endless.read == 7
    assert found[[0, -1], 0].tolist() == [1.0, 7.0]


def test_a_stream_that_was_used_up_is_told_as_such() -> None:
    given = Given("train_loader", iter([GOOD] * 3))
    list(given.pairs(CPU))
    with pytest.raises(ValueError, match=r"found no example, expected 6 as in the first pass.*used up"):
        list(given.pairs(CPU))
