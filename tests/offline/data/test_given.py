"""offline/data/given.py: pairs of tensors, arrays and data frames, datasets and batches; columns by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from demur.offline import FitConfig, fit_bundle
from demur.offline.data.given import BATCH_SIZE, given_data, given_foreign
from demur.service.bundle import read_manifest

INPUTS, TARGETS = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
FRAME = pd.DataFrame({"height": [0, 2, 4], "weight": [1.0, 3.0, 5.0]})

FORMS: dict[str, Any] = {
    "arrays": (INPUTS, TARGETS),
    "tensors": (torch.as_tensor(INPUTS), torch.as_tensor(TARGETS)),
    "mixed": (INPUTS.astype(np.float32), torch.as_tensor(TARGETS)),
    "the other byte order": (INPUTS.astype(">f4"), TARGETS.astype(">i8")),
    "more than 64 bits": (INPUTS.astype(np.longdouble), TARGETS),
    "batches in the other byte order": [(INPUTS.astype(">f8"), TARGETS.astype(">i4"))],
    "small integers": (INPUTS, TARGETS.astype(np.int8)),
    "a list": [INPUTS, TARGETS],
    "a frame": (FRAME, pd.Series(TARGETS)),
    "another index": (FRAME, pd.Series(TARGETS, index=["a", "b", "c"])),
    "a frame and an array": (FRAME, TARGETS),
    "a dataset": TensorDataset(torch.as_tensor(INPUTS), torch.as_tensor(TARGETS)),
    "batches of arrays": [(INPUTS, TARGETS)],
    "a loader": DataLoader(TensorDataset(torch.as_tensor(INPUTS), torch.as_tensor(TARGETS)), batch_size=3),
}


def pairs(data: Any, columns: tuple[str, ...] | None = None) -> list[tuple[Any, Any]]:
    given = given_data(data, "data", columns)
    return [(x.tolist(), y.tolist()) for x, y in given.pairs(torch.device("cpu"))]


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_every_form_becomes_batches_in_the_given_order(data: Any) -> None:
    for _ in range(2):
        assert pairs(data) == [(INPUTS.tolist(), TARGETS.tolist())]


def test_a_pair_is_cut_into_batches() -> None:
    count = 2 * BATCH_SIZE + 1
    batches = list(given_data((torch.arange(count).reshape(count, 1), torch.arange(count)), "data").batches)
    assert [len(inputs) for inputs, _ in batches] == [BATCH_SIZE, BATCH_SIZE, 1]
    assert torch.equal(torch.cat([targets for _, targets in batches]), torch.arange(count))


def test_columns_are_ordered_by_name_and_others_left_out() -> None:
    frame = FRAME.assign(name=["a", "b", "c"])[["name", "weight", "height"]]
    assert pairs((frame, TARGETS), ("height", "weight")) == [(INPUTS.tolist(), TARGETS.tolist())]
    assert given_data((FRAME, TARGETS), "data").columns == ("height", "weight")
    assert given_data((INPUTS, TARGETS), "data", ("height", "weight")).columns is None


class Batches(Dataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: int) -> Any:
        return INPUTS, TARGETS


def test_the_size_of_a_dataset_of_batches_is_not_known() -> None:
    whole = TensorDataset(torch.as_tensor(INPUTS), torch.as_tensor(TARGETS))
    assert given_data(DataLoader(whole, batch_size=2), "data").dataset_size == 3
    assert given_data(DataLoader(Batches(), batch_size=None), "data").dataset_size is None


REFUSED: dict[str, tuple[Any, tuple[str, ...] | None, str]] = {
    "an array for each": (([*INPUTS], TARGETS), None, r"found an array for each example.*give numpy\.stack"),
    "batches of two lengths": (
        [(INPUTS, TARGETS), (INPUTS[:, :1], TARGETS)],
        None,
        r"data, batch 1: found inputs of shape \(1,\), expected \(2,\) as before: pad or cut all of them to one length",
    ),
    "unequal": ((INPUTS, TARGETS[:2]), None, "data: found 3 inputs and 2 targets, expected as many of each"),
    "missing": ((FRAME, TARGETS), ("height", "age"), "data: found no column 'age', expected one of each name"),
    "words": (
        (FRAME.assign(city="Ulm"), TARGETS),
        None,
        "data, column 'city', row 0: found 'Ulm', expected a number",
    ),
    "nothing": (
        (FRAME.assign(weight=[1.0, None, 5.0]), TARGETS),
        None,
        "data, column 'weight', row 1: found nan, expected a finite number",
    ),
    "labels": (
        (FRAME, np.array(["cat", "dog", "cat"])),
        None,
        "data, targets, row 0: found .*'cat'.*, expected a number",
    ),
    "another order": (
        (FRAME, pd.Series([1, 0, 1], index=[2, 1, 0])),
        None,
        "data: found the rows of the targets in another order than those of the inputs, by their index; give targets",
    ),
    "twice": ((pd.concat([FRAME, FRAME], axis=1), TARGETS), None, "data: found several columns 'height', expected one"),
}


@pytest.mark.parametrize(("data", "columns", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used(data: Any, columns: tuple[str, ...] | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pairs(data, columns)


@pytest.mark.usefixtures("without_export")
def test_a_fit_takes_frames_and_keeps_the_names_of_their_columns(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(160, 3)), columns=["height", "weight", "age"])
    y = (frame["height"] + draw.normal(size=160) > 0).astype(int)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    held_out = frame[100:][["age", "height", "weight"]], y[100:]
    config = FitConfig(false_reject_rate=0.1)
    folders = [
        fit_bundle(model, (frame[:100], y[:100]), tmp_path / "frames", calibration_loader=held_out, config=config),
        fit_bundle(
            model,
            (frame[:100].to_numpy(), y[:100].to_numpy()),
            tmp_path / "arrays",
            calibration_loader=(frame[100:].to_numpy(), y[100:].to_numpy()),
            config=config,
        ),
    ]
    (frames, _), (arrays, _) = map(read_manifest, folders)
    assert frames.input.feature_names == ("height", "weight", "age")
    assert arrays.input.feature_names is None
    assert frames.metrics == arrays.metrics
    assert frames.calibration.threshold == arrays.calibration.threshold


def test_lists_of_unequal_length_are_told_to_be_lists() -> None:
    with pytest.raises(ValueError, match="found lists, expected arrays"):
        given_data(([[1, 2], [3]], [0, 1]), "data")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), "found a quantised tensor"),
        (lambda x: torch.nested.nested_tensor([x[0], x[1], x[2, :1]]), "found a nested tensor"),
        (lambda x: x.to_sparse(), "found a tensor of layout torch.sparse_coo"),
    ],
    ids=["quantised", "nested", "sparse"],
)
@pytest.mark.filterwarnings("ignore")  # of torch: such tensors are no longer made, or not yet
def test_layouts_that_no_fit_takes_are_named(make: Any, words: str) -> None:
    inputs = make(torch.as_tensor(INPUTS).float())
    for data in ((inputs, torch.as_tensor(TARGETS)), [(inputs, torch.as_tensor(TARGETS))]):
        with pytest.raises(ValueError, match=words):
            pairs(data)


@pytest.mark.parametrize(
    "targets",
    [None, np.full(3, np.nan), np.array(["a", "b", "c"]), np.zeros((3, 2)), pd.Series(["a", "b", "c"])],
    ids=str,
)
def test_targets_of_foreign_data_may_be_anything(targets: Any) -> None:
    ((inputs, _),) = given_foreign((INPUTS, targets), "foreign").pairs(torch.device("cpu"))
    assert inputs.tolist() == INPUTS.tolist()


def test_foreign_data_may_be_two_batches() -> None:
    given = given_foreign([(torch.as_tensor(INPUTS), torch.as_tensor(TARGETS))] * 2, "foreign")
    assert [len(x) for x, _ in given.pairs(torch.device("cpu"))] == [3, 3]


def test_columns_of_targets_have_names_beside_several_inputs_too() -> None:
    given = given_data(({"u": INPUTS, "v": INPUTS}, FRAME), "data")
    assert given.targets == ("height", "weight")
