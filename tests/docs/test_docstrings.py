"""The examples in docstrings, which the site's reference shows, run as they stand."""

import ast
import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import BatchScorer, DemurClassifier, InputSpec, Predictor
from tests.support.bundles import write_linear
from tests.support.fake_hub import fake_hub
from tests.support.server import ROOT, running

pytestmark = pytest.mark.slow
KINDS = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def examples() -> dict[str, str]:
    """The code of each docstring that has some, by its file and the name of what it describes."""
    found = {}
    for file in sorted(path for room in ("demur", "offline", "service") for path in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            code = doctest.script_from_examples(ast.get_docstring(node) or "") if isinstance(node, KINDS) else ""
            if any(line and not line.startswith("#") for line in code.splitlines()):
                found[f"{file.relative_to(ROOT)}:{getattr(node, 'name', '')}"] = code
    return found


EXAMPLES = examples()


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the examples take as given, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEMUR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflow").as_uri())
    torch.manual_seed(0)
    rows, labels = torch.randn(400, 4), torch.randint(0, 3, (400,))
    data = torch.utils.data.TensorDataset(rows, labels)
    loaders = [torch.utils.data.DataLoader(part, 50) for part in torch.utils.data.random_split(data, [250, 150])]
    return {
        "__name__": "example",
        "model": torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)),
        "train_loader": loaders[0],
        "held_out": loaders[1],
        "inputs": rows.numpy(),
        "images": rows.numpy(),
        "names": np.arange(400),
        "X": rows.numpy(),
        "y": labels.numpy(),
        "BatchScorer": BatchScorer,
        "DemurClassifier": DemurClassifier,
        "MLPClassifier": MLPClassifier,
        "StandardScaler": StandardScaler,
        "cross_val_score": cross_val_score,
        "make_pipeline": make_pipeline,
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::FutureWarning:mlflow")
@pytest.mark.parametrize("where", EXAMPLES)
def test_an_example_runs(where: str, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    code = EXAMPLES[where]
    if "fit_bundle" in code:
        exec(code, names)
        assert Predictor.load("bundles/digits").manifest.outputs == 3
        return
    bundle = write_linear(Path("bundles/digits"), outputs=3, spec=InputSpec((4,))).path
    with fake_hub() as hub, running(bundle.absolute()) as server:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        Predictor.load(bundle).push_to_hub("acme/digits")
        exec(code.replace(":8000", f":{server.port}"), names)


def test_examples_are_found() -> None:
    assert {
        "demur/__init__.py:",
        "service/client/__init__.py:",
        "demur/scoring/batches.py:BatchScorer",
    } <= EXAMPLES.keys()
