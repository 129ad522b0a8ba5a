"""Whatever users hand to a fit, in whichever form, is afterwards as it was, and so is what their process has set."""

import copy
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

from demur.offline import FitConfig, fit_bundle
from tests.support.small_fit import network, skip_export, state

DRAW = np.random.default_rng(0)
COLUMNS = ["a", "b", "c", "d"]


class Own(Dataset[Any]):
    """A dataset of the user's, with a cache and a generator of its own."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.inputs, self.targets, self.noise = inputs, targets, np.random.default_rng(3)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, place: int) -> Any:
        drawn = self.noise.normal(0, 0.01, 4).astype(np.float32)
        return torch.as_tensor(self.inputs[place] + drawn), int(self.targets[place])


def made(kind: str, count: int) -> Any:
    inputs = DRAW.normal(size=(count, 4)).astype(np.float32)
    targets = DRAW.integers(0, 2, count)
    tensors = TensorDataset(torch.as_tensor(inputs), torch.as_tensor(targets))
    generator = torch.Generator().manual_seed(7)
    kinds: dict[str, Callable[[], Any]] = {
        "arrays": lambda: (inputs, targets),
        "arrays in columns' order": lambda: (np.asfortranarray(inputs), targets),
        "a part of an array": lambda: (np.tile(inputs, 3)[:, 4:8], np.repeat(targets, 2)[::2]),
        "float64": lambda: (inputs.astype(np.float64), targets.astype(np.int32)),
        "tensors": lambda: tensors.tensors,
        "a frame": lambda: (
            pd.DataFrame(inputs, columns=COLUMNS, index=range(5, 5 + count))[COLUMNS[::-1]],
            pd.Series(targets, index=range(5, 5 + count)),
        ),
        "a dataset": lambda: Own(inputs, targets),
        "a loader that draws": lambda: DataLoader(tensors, 8, shuffle=True, generator=generator),
        "a loader with a sampler": lambda: DataLoader(tensors, 8, sampler=RandomSampler(tensors, generator=generator)),
        "batches": lambda: [(x, y) for x, y in DataLoader(tensors, 16)],
    }
    return kinds[kind]()


KINDS = ["a part of an array", "a frame", "a dataset", "a loader that draws"]
WHOLE = {"a dataset", "a loader that draws"}
OTHERS = ["arrays", "arrays in columns' order", "float64", "tensors", "a loader with a sampler", "batches"]


LEAVES: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor: lambda one: (one.dtype, one.stride(), one.data_ptr(), one.requires_grad, one.tolist()),
    np.ndarray: lambda one: (one.dtype, one.strides, one.flags.writeable, one.ctypes.data, one.tolist()),
    (pd.DataFrame, pd.Series): lambda one: (one.to_json(orient="split"), str(one.dtypes), one.attrs),
    torch.Generator: lambda one: one.get_state().tolist(),
    np.random.Generator: lambda one: str(one.bit_generator.state),
    (list, tuple): lambda one: [told(each) for each in one],
    dict: lambda one: {name: told(each) for name, each in one.items()},
    (TensorDataset, DataLoader, RandomSampler, Own): lambda one: told(vars(one)),
    (str, int, float, type(None)): lambda one: one,
}


def told(value: Any) -> Any:
    """What can be compared with ==, and tells values, types, memory and generators."""
    tell = next((tell for kinds, tell in LEAVES.items() if isinstance(value, kinds)), id)
    return type(value), tell(value)


def of_the_process(here: Path) -> dict[str, Any]:
    """What is set for all of the process."""
    return {
        # scikit-learn sets some of Intel's library when it is imported.
        "environment": {name: value for name, value in os.environ.items() if not name.startswith("KMP_")},
        "folder": os.getcwd(),  # noqa: PTH109
        "files": sorted(map(str, here.iterdir())),
        "path": list(sys.path),
        "warnings": list(warnings.filters),
        "levels": {name: logging.getLogger(name).level for name in ("", "torch", "onnx", "demur", "matplotlib")},
        "handlers": list(logging.getLogger().handlers),
        "float errors": np.geterr(),
        "printing": np.get_printoptions(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "gradients": torch.is_grad_enabled(),
        "hooks": sys.excepthook,
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(np.random.get_state()),
        "python": random.getstate(),
    }


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Libraries set a few things when they are imported."""
    out = tmp_path_factory.mktemp("first") / "bundle"
    fit_bundle(nn.Linear(4, 2), made("a frame", 60), out, calibration_loader=made("a frame", 60))


@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in OTHERS)])
def test_nothing_that_is_given_changes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind not in WHOLE:  # the forms of data differ no more once they are read
        skip_export(monkeypatch)
    monkeypatch.chdir(tmp_path)
    given = {name: made(kind, count) for name, count in (("train", 60), ("held out", 60), ("foreign", 20))}
    names, options = ["no", "yes"], {"live_only": False}
    config = FitConfig(subnetwork_size=6, selection="random", selection_options=options, false_reject_rate=0.1)
    model = network()
    before = told(given), state(model), copy.deepcopy((names, options)), config.model_dump_json()
    process = of_the_process(tmp_path)
    fit_bundle(
        model,
        given["train"],
        tmp_path / "bundle",
        calibration_loader=given["held out"],
        foreign_loader=given["foreign"],
        class_names=names,
        config=config,
    )
    assert (told(given), state(model), (names, options), config.model_dump_json()) == before
    left = of_the_process(tmp_path)
    assert left.pop("files") == sorted([*process.pop("files"), str(tmp_path / "bundle")])
    for name, value in process.items():
        assert left[name] == value, name
