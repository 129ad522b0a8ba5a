"""Mistakes that people make: each is told in one clear line with what was found and expected, before a model is trained
wherever the model is not to blame."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.offline.network.unsupported import SUPPORTED
from demur.service.bundle import InputSpec
from tests.support.bundles import write_linear
from tests.support.processes import usual_signals

RECIPE = """
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import TensorDataset
from demur import FitConfig, InputSpec

config = FitConfig(name="tiny", subnetwork_size=5, false_reject_rate=0.1, device="cpu")

def model():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))

def data(seed, count=60):
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()

def frame(seed, columns="abcd"):
    x, y = data(seed)
    return pd.DataFrame(x.numpy(), columns=list(columns)), y.numpy()

class Layered(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

def train_data():
    return data(0)

def calibration_data():
    return data(1)
"""
UNTRAINED = "\ndef model():\n    raise AssertionError('the model was trained')\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_linear(tmp_path_factory.mktemp("mistakes") / "bundle", outputs=3, spec=InputSpec(shape=(4,))).path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with what people have in theirs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(RECIPE)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "text.onnx").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "good.csv").write_text("1,2,3,4\n")
    (tmp_path / "text.csv").write_text("1,2,3,4\n1,x,3,4\n")
    (tmp_path / "named.csv").write_text("a,b,c,d\n1,2,3,4\n")
    (tmp_path / "short.csv").write_text("1,2,3,4\n1,2,3\n")
    np.save(tmp_path / "wide.npy", np.zeros((2, 5), np.float32))
    np.save(tmp_path / "good.npy", np.zeros((2, 4), np.float32))
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def told(result: Result, *words: str) -> None:
    """Exit code 2, no traceback, each word in the error, nothing of pydantic's or torch's own prose."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    for word in words:
        assert word in result.stderr, result.stderr
    for prose in ("Input should", "Value error", "errors.pydantic.dev", "Traceback"):
        assert prose not in result.stderr


COMMANDS = {
    "no recipe": ("fit gud.py --out x", "gud.py: no such file", "demur new"),
    "a folder as recipe": ("fit folder --out x", "folder: no such file, expected a recipe"),
    "out is a file": ("fit good.py --out file", "file: exists and is not a folder", "another destination"),
    "out holds other files": ("fit good.py --out folder", "is not a bundle; nothing was overwritten"),
    "out holds a bundle": ("fit good.py --out BUNDLE", "holds a bundle", "--force"),
    "misspelt option": ("fit good.py --out x --subnetwork-sise 3", "--subnetwork-size"),
    "misspelt command": ("fti good.py", "Did you mean 'fit'?"),
    "misspelt value": ("fit good.py --out x --selection randon", "did you mean 'random'?"),
    "no number": ("fit good.py --out x --seed many", "seed: found 'many', expected a whole number"),
    "no JSON": ("fit good.py --out x --selection-options {x", "selection_options: found '{x', expected a JSON object"),
    "no GPU": ("fit good.py --out x --device cuda:99", "device: found 'cuda:99'", "'cpu' or 'auto'"),
    "out in a bundle": ("fit good.py --out BUNDLE/new", "lies in the bundle", "outside it"),
    "no recipe to check": ("check gud.py", "gud.py: no such file", "demur new"),
    "examples beside a recipe to check": ("check good.py --data x.npz", "--data: found x.npz beside a recipe"),
    "no network to check": ("check gud.onnx", "gud.onnx: no such file, expected a network in ONNX"),
    "another network to check": ("check text.onnx", "text.onnx: found", "expected a readable ONNX file"),
    "out is a link": ("fit good.py --out link", "is a link to empty (remedy: give the folder itself)"),
    "another size with a strategy": (
        "fit good.py --out x --selection random --subnetwork-size 99",
        "found 99, expected",
    ),
    "recipe to be written": ("new table recipe", "found the suffix '', expected a name that ends in .py"),
    "misspelt kind": ("new imags a.py", "did you mean 'images'?"),
    "recipe exists": ("new table good.py", "good.py: exists; give another name"),
    "inspect no bundle": ("inspect folder", "manifest.json: missing file", "remedy"),
    "serve nothing there": ("serve gud", "gud: no such folder", "demur fit"),
    "serve no bundle": ("serve empty", "manifest.json: missing file"),
    "serve a folder of bundles": ("serve BUNDLES", "is no bundle, but holds 1", "--models"),
    "serve a bundle as a folder": ("serve --models BUNDLE", "is a bundle, expected a folder of bundles"),
    "port too large": ("serve BUNDLE --port 99999", "DEMUR_PORT", "found '99999', expected a number less than"),
    "a port that is none": ("serve BUNDLE --port abc", "port (DEMUR_PORT): found 'abc', expected a whole number"),
    "a batch size that is none": (
        "score BUNDLE good.npy --out o.csv --batch-size abc",
        "found 'abc', expected a whole",
    ),
    "a rate that is none": (
        "score BUNDLE good.npy --out o.csv --false-reject-rate abc",
        "found 'abc', expected a number",
    ),
    "fit: the bundle first": ("fit BUNDLE --out x", "found a bundle, expected a recipe"),
    "score: in the other order": ("score good.npy BUNDLE --out o.csv", "give the bundle first, then the inputs"),
    "score: no bundle": ("score gud good.npy --out o.csv", "gud: no such folder"),
    "score: no inputs": ("score BUNDLE u.csv --out o.csv", "u.csv: no such file or folder"),
    "score: inputs of a kind": ("score BUNDLE good.py --out o.csv", "found the suffix '.py', expected .npy"),
    "score: out of a kind": ("score BUNDLE good.npy --out o.txt", "found the suffix '.txt', expected one of .jsonl"),
    "score: no such column": ("score BUNDLE named.csv --out o.csv --keep patient", "--keep: found no column 'patient'"),
    "score: a word": ("score BUNDLE text.csv --out o.csv", "row 1 (line 2)", "found 'x', expected a number"),
    "score: a short row": ("score BUNDLE short.csv --out o.csv", "row 1 (line 2)", "expected"),
    "score: another shape": ("score BUNDLE wide.npy --out o.csv", "found shape (2, 5), expected (n, 4)"),
    "score: a rate": ("score BUNDLE good.npy --out o.csv --false-reject-rate 2", "false_reject_rate: found 2"),
    "score: out is the input": ("score BUNDLE good.csv --out good.csv --force", "is the file that is read"),
    "score: out is a folder": ("score BUNDLE good.npy --out folder.csv", "exists and is no file"),
    "score: out in the bundle": ("score BUNDLE good.npy --out BUNDLE/o.csv", "lies in the bundle"),
    "export: over another file": ("export BUNDLE --standalone good.py --force", "suffix '.py', expected '.onnx'"),
    "a long name": (f"new table {'a' * 300}.py", "could not be written (File name too long)"),
    "score: keep no column": (
        "score BUNDLE named.csv --out o.csv --keep z",
        "no column 'z', expected columns of named.csv",
    ),
    "evaluate: figures over another file": ("evaluate BUNDLE good.py --json good.py", "exists and is no evaluation"),
    "evaluate: figures below a file": ("evaluate BUNDLE good.py --json good.py/o.json", "good.py is a file"),
    "evaluate: figures over a folder": ("evaluate BUNDLE good.py --json folder", "exists and is no file"),
    "evaluate: in the other order": ("evaluate good.py BUNDLE", "give the bundle first, then the recipe"),
    "evaluate: no recipe": ("evaluate BUNDLE gud.py", "gud.py: no such file"),
    "evaluate: no test data": ("evaluate BUNDLE good.py", "found no function test_data()"),
    "sign: no key": ("sign BUNDLE --key key.pem", "key.pem: cannot be read"),
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("line", "words"), [(line, words) for line, *words in COMMANDS.values()], ids=COMMANDS)
def test_on_the_command_line(line: str, words: list[str], bundle: Path) -> None:
    line = line.replace("BUNDLES", str(bundle.parent)).replace("BUNDLE", str(bundle))
    before = _files(Path.cwd()), _files(bundle)
    told(run(*line.split()), *words)
    assert (_files(Path.cwd()), _files(bundle)) == before


def _files(folder: Path) -> dict[str, bytes]:
    """All files but those that Python itself keeps of an imported recipe."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.parent.name != "__pycache__")
    return {str(file): file.read_bytes() for file in files}


def test_an_input_of_another_shape_leaves_nothing_that_stops_the_next_run(here: Path, bundle: Path) -> None:
    told(run("score", bundle, "text.csv", "--out", "o.csv"), "found 'x'")
    assert run("score", bundle, "good.npy", "--out", "o.csv").exit_code == 0
    assert len((here / "o.csv").read_text().splitlines()) == 3


SETTINGS = {
    "misspelt": ({"DEMUR_PROT": "1"}, "DEMUR_PROT: unknown setting (did you mean 'DEMUR_PORT'?)"),
    "unknown": ({"DEMUR_QQQQ": "1"}, "DEMUR_QQQQ: unknown setting; docs/settings.md lists all"),
    "no number": ({"DEMUR_PORT": "many"}, "port (DEMUR_PORT): found 'many', expected a whole number"),
    "a flood of workers": ({"DEMUR_WORKERS": "100000"}, "workers (DEMUR_WORKERS): found 100000, expected at most"),
    "the audit trail in a file": ({"DEMUR_AUDIT_FILE": "HERE/good.py"}, "found a file that is no audit trail"),
    "the audit trail in the bundle": ({"DEMUR_AUDIT_FILE": "BUNDLE/audit.jsonl"}, "lies in the bundle"),
    "no secret": (
        {"DEMUR_FEEDBACK_SECRET_FILE": "HERE/none"},
        "cannot be read (No such file or directory)",
    ),
    "one rate": ({"DEMUR_REQUESTED_RATES": "0.1"}, "found '0.1', expected two rates between 0 and 1"),
    "three rates": ({"DEMUR_REQUESTED_RATES": "0.1,0.2,0.3"}, "found '0.1,0.2,0.3', expected two rates"),
    "a rate above 1": ({"DEMUR_REQUESTED_RATES": "0,2"}, "found '0,2', expected two rates between 0 and 1"),
    "rates in the other order": (
        {"DEMUR_REQUESTED_RATES": "0.2,0.01"},
        "requested_rates (DEMUR_REQUESTED_RATES): found '0.2,0.01', expected two rates between 0 and 1, the lower",
    ),
    "no choice": ({"DEMUR_LOG_LEVEL": "wanring"}, "found 'wanring' (did you mean 'warning'?)"),
}


@pytest.mark.parametrize(("variables", "words"), SETTINGS.values(), ids=SETTINGS)
def test_in_a_setting(
    variables: dict[str, str], words: str, bundle: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _files(here), _files(bundle)
    for name, value in {"DEMUR_PORT": "0", **variables}.items():
        monkeypatch.setenv(name, value.replace("HERE", str(here)).replace("BUNDLE", str(bundle)))
    told(run("serve", bundle), words)
    assert (_files(here), _files(bundle)) == before


def test_a_port_in_use(bundle: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("serve", bundle, "--port", taken.getsockname()[1])
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: cannot serve on {address}: address already in use; give another --port")
    assert result.stderr.count("\n") == 1


RECIPES = {
    "syntax": ("def train_data(:", "SyntaxError", "r.py:"),
    "misspelt name": ("traindata = train_data; del train_data", "found traindata", "did you mean train_data?"),
    "no calibration data": ("del calibration_data", "found no function calibration_data()", "demur new"),
    "config is a dict": ("config = {'name': 'x'}", "config: found dict, expected a FitConfig"),
    "misspelt option": (
        "config = FitConfig(selektion='random')",
        "selektion: unknown option (did you mean 'selection'?)",
    ),
    "misspelt value": ("config = FitConfig(selection='randon')", "(did you mean 'random'?)", "config = FitConfig("),
    "option of a type": ("config = FitConfig(subnetwork_size='all')", "found 'all', expected an integer of at least 1"),
    "names in a text": ("class_names = 'abc'", "class_names: found str, expected a list of names"),
    "names in a set": ("class_names = {'a', 'b', 'c'}", "class_names: found set, expected a list of names"),
    "no name for one": (
        "class_names = ['a', None, 'c']",
        "class_names: found ['a', None, 'c'], expected a name for each",
    ),
    "layers as a text": ("config = FitConfig(added_weights='0')", "added_weights: found '0', expected true or false"),
    "a choice without a context": ("config = FitConfig(selection=lambda: [0])", "selection: found a function without"),
    "a choice with more arguments": (
        "config = FitConfig(selection=lambda context, options: [0])",
        "selection_options: found no 'options', which <lambda>() needs; options are given by name",
    ),
    "too few names": ("class_names = ['a', 'b']", "class_names: found 2 names", "class numbers up to 2"),
    "equal names": ("class_names = ['a', 'b', 'b']", "class_names: found", "all different"),
    "spec of a shape": ("input_spec = InputSpec(shape=(1, 8, 8))", "input_spec: found (1, 8, 8)", "expected (4,)"),
    "spec of names": ("input_spec = InputSpec(shape=(4,), feature_names=('a',))", "feature_names: found 1 names"),
    "spec is a tuple": ("input_spec = (4,)", "input_spec: found tuple, expected an InputSpec"),
    "not a number": (
        "def train_data():\n    x, y = data(0)\n    x[3, 2] = float('nan')\n    return x, y",
        "train_data(), batch 0: found NaN or infinity in the inputs, first in example 3, entry [2]",
    ),
    "lengths": ("def train_data():\n    x, y = data(0)\n    return x, y[1:]", "found 60 inputs and 59 targets"),
    "huge": (
        "def train_data():\n    x, y = data(0)\n    return x * 1e31, y",
        "in the inputs, first in example 0, entry [0]; expected numbers of at most 1e+30",
    ),
    "ended": ("import sys\nsys.exit(0)", "ended by sys.exit: 0", "sys.exit(0)"),
    "sparse": ("def train_data():\n    x, y = data(0)\n    return x.to_sparse(), y", "x.to_dense()"),
    "sparse batches": (
        "def train_data():\n    x, y = data(0)\n    return [(x.to_sparse(), y)]",
        "train_data(), batch 0: found a tensor of layout torch.sparse_coo",
    ),
    "sparse of SciPy": (
        "import scipy\ndef train_data():\n    x, y = data(0)\n    return scipy.sparse.csr_matrix(x), y",
        "found a sparse csr_matrix, expected an array; give X.toarray()",
    ),
    "a dict of both": (
        "def train_data():\n    x, y = data(0)\n    return {'x': x, 'y': y}",
        "found a dict, expected inputs and targets: the pair (X, y)",
    ),
    "data without values": (
        "def train_data():\n    x, y = data(0)\n    return x.to('meta'), y",
        "on the device 'meta', expected one with values",
    ),
    "masked": (
        "def train_data():\n    x, y = data(0)\n    return np.ma.masked_less(x.numpy(), 0), y",
        "found masked entries, expected numbers; fill what is missing",
    ),
    "truth values": ("def train_data():\n    x, y = data(0)\n    return x > 0, y", "torch.bool", "such as x.float()"),
    "classes as floats": (
        "def train_data():\n    x, y = data(0)\n    return x, y.float()",
        "expected integer class numbers; give targets.long()",
    ),
    "classes in a column": (
        "def train_data():\n    x, y = data(0)\n    return x, y[:, None]",
        "found shape (60, 1), expected (60,) class numbers; give targets.reshape(-1)",
    ),
    "classes -1 and 1": (
        "def train_data():\n    x, y = data(0)\n    return x, 2 * (y > 0).long() - 1",
        "found class numbers from -1 to 1",
        "(targets > 0).long()",
    ),
    "a frame alone": ("def train_data():\n    return frame(0)[0]", "found a data frame alone", "frame['target']"),
    "a tensor alone": ("def train_data():\n    return data(0)[0]", "found one Tensor alone", "the pair (X, y)"),
    "an iterator": ("def train_data():\n    yield data(0)", "found an iterator (generator)", "list(...)"),
    "several tensors": (
        "def train_data():\n    x, y = data(0)\n    return TensorDataset(x, x, y)",
        "found list of Tensor, Tensor, Tensor",
        "((a, b), targets)",
    ),
    "nothing": ("def train_data():\n    data(0)", "train_data(): found NoneType, expected an iterable"),
    "images of several sizes": (
        "class D(torch.utils.data.Dataset):\n    def __len__(self): return 60\n"
        "    def __getitem__(self, i): return torch.randn(4 + i % 2), i % 3\ndef train_data():\n    return D()",
        "train_data(), batch 0: found (Tensor of shape (5,), a number) as example 1 of the dataset, expected (Tensor "
        "of shape (4,), a number) as before; resize, crop, pad",
    ),
    "an object in a dataset": (
        "class D(torch.utils.data.Dataset):\n    def __len__(self): return 60\n"
        "    def __getitem__(self, i): return None, i % 3\ndef train_data():\n    return D()",
        "train_data(), batch 0: found None in example 0 of the dataset, expected a value; leave such examples out",
    ),
    "no target of one": (
        "class D(torch.utils.data.Dataset):\n    def __len__(self): return 60\n"
        "    def __getitem__(self, i): return torch.ones(4), None if i == 7 else i % 3\n"
        "def train_data():\n    return D()",
        "train_data(), batch 0: found None in example 7 of the dataset, expected a value; leave such examples out",
    ),
    "no example in one place": (
        "class D(torch.utils.data.Dataset):\n    def __len__(self): return 60\n"
        "    def __getitem__(self, i): return None if i == 7 else (torch.ones(4), i % 3)\n"
        "def train_data():\n    return torch.utils.data.DataLoader(D(), 16)",
        "train_data(), batch 0: found None in example 7 of the dataset, expected a value; leave such examples out",
    ),
    "no input of one": (
        "def train_data():\n    x, y = data(0)\n    return torch.utils.data.DataLoader("
        "[(None if i == 7 else x[i], y[i]) for i in range(60)], 16)",
        "train_data(), batch 0: found None in example 7 of the dataset",
    ),
    "pictures": (
        "from PIL import Image\nclass D(torch.utils.data.Dataset):\n    def __len__(self): return 60\n"
        "    def __getitem__(self, i): return Image.new('L', (4, 4)), i % 3\ndef train_data():\n    return D()",
        "found Image in example 0 of the dataset, expected tensors, arrays or numbers; make them",
        "torch.as_tensor(numpy.array(image))",
    ),
    "examples as mappings": (
        "class D(torch.utils.data.Dataset):\n    def __len__(self): return 60\n"
        "    def __getitem__(self, i): return {'x': torch.ones(4), 'y': i % 3}\ndef train_data():\n    return D()",
        "train_data(), batch 0: found dict of 'x', 'y', expected a pair",
        "make pairs of them",
    ),
    "words for classes in a dataset": (
        "def train_data():\n    x, y = data(0)\n    return torch.utils.data.DataLoader("
        "[(x[i], 'abc'[y[i]]) for i in range(60)], 16)",
        "train_data(), batch 0: found list of Tensor, tuple",
        "encode words as class numbers",
    ),
    "a dataset without a length": (
        "class D(torch.utils.data.Dataset):\n"
        "    def __getitem__(self, i): return torch.ones(4), i % 3\ndef train_data():\n    return D()",
        "train_data(): found D without a length; give it a method __len__",
    ),
    "no targets": ("def train_data():\n    return data(0)[0], None", "train_data(): found inputs and None, expected"),
    "pairs of a tensor and a number": (
        "def train_data():\n    x, y = data(0)\n    return list(zip(x, y.tolist()))",
        "found tuple of Tensor, int",
        "DataLoader(examples, 128) makes batches",
    ),
    "pairs of single examples": (
        "def train_data():\n    return list(zip(*data(0)))",
        "found inputs (4,) and targets ()",
        "DataLoader(examples, 128) makes batches",
    ),
    "three arrays": (
        "def train_data():\n    x, y = data(0)\n    return x, y, y",
        "found 3 arrays, expected two: inputs and targets",
    ),
    "rows as objects": (
        "def train_data():\n    return [{'a': 1.0}] * 60, [0] * 60",
        "found lists, expected arrays: give pandas.DataFrame(X) and numpy.array(y)",
    ),
    "classes -1 and 1 as floats": (
        "def train_data():\n    x, y = data(0)\n    return x, 2.0 * (y > 0) - 1",
        "give (targets > 0).long()",
    ),
    "an option of no strategy": (
        "config = FitConfig(selection='random', selection_options={'live_onli': True})",
        "selection_options: found 'live_onli' (did you mean 'live_only'?), expected live_only for selection='random'",
    ),
    "an option of another type": (
        "config = FitConfig(selection='random', selection_options={'live_only': 'yes'})",
        "selection_options['live_only']: found 'yes', expected true or false",
    ),
    "an option out of bounds": (
        "config = FitConfig(selection='wasserstein-swag', selection_options={'snapshots': 0})",
        "selection_options['snapshots']: found 0, expected a number greater than or equal to 2",
    ),
    "lists": (
        "def train_data():\n    return [[1.0, 2.0]], [0]",
        "found lists, expected arrays: give numpy.array(X)",
    ),
    "bytes": ("def train_data():\n    x, y = data(0)\n    return x.byte(), y", "torch.uint8", "x.float() / 255"),
    "a word in a column": (
        "def train_data():\n    x, y = frame(0)\n    x['b'] = 'red'\n    return x, y",
        "column 'b', row 0: found 'red', expected a number",
    ),
    "another column": (
        "def train_data():\n    return frame(0)\ndef calibration_data():\n    return frame(1, 'abce')",
        "calibration_data(): found no column 'd'",
    ),
    "names for calibration alone": (
        "def calibration_data():\n    return frame(1, 'dcba')",
        "calibration_data(): found columns with names, and training data without; give both as data frames",
    ),
    "words for classes": (
        "def train_data():\n    x, y = data(0)\n    return x, np.array(['cat', 'dog', 'cow'])[y]",
        "train_data(), targets, row 0: found '",
        "expected a number",
    ),
    "values for classes": (
        "def train_data():\n    x, y = data(0)\n    return x, 3 * x[:, 0]",
        "train_data(): targets: found dtype torch.float32",
        "likelihood='regression'",
    ),
    "one-hot classes": (
        "def train_data():\n    x, y = data(0)\n    return x, nn.functional.one_hot(y)",
        "found a single 1 in each row",
        "targets.argmax(1)",
    ),
    "calibration of a shape": (
        "def calibration_data():\n    x, y = data(1)\n    return x[:, :3], y",
        "calibration_data(): found inputs of shape (3,)",
        "as in train_data()",
    ),
    "calibration of a type": (
        "def calibration_data():\n    x, y = data(1)\n    return x.long(), y",
        "found inputs of shape (4,) and torch.int64",
    ),
    "little calibration": ("def calibration_data():\n    return data(1, 8)", "found 4 examples", "expected at least 9"),
    "classes without names": (
        "class_names = list('abc')\ndef calibration_data():\n    x, y = data(1)\n    return x, y + 7",
        "class_names: found 3 names",
        "class numbers up to 9",
    ),
    "a score that is no more": (
        "config = FitConfig(score='fused')",
        "score: found 'fused', expected 'default'",
        "or 'surprise'",
    ),
    "foreign data of another shape": (
        "def foreign_data():\n    return data(3)[0][:, :2], data(3)[1]",
        "foreign_data()",
    ),
}


@pytest.mark.parametrize(("change", "words"), [(line, words) for line, *words in RECIPES.values()], ids=RECIPES)
def test_in_a_recipe_before_its_model_is_trained(change: str, words: list[str], here: Path) -> None:
    (here / "r.py").write_text(f"{RECIPE}{UNTRAINED}{change}\n")
    told(run("fit", "r.py", "--out", "x"), *words)
    assert not (here / "x").exists()


ONE_OUTPUT = "def data(seed, count=60):\n    x = torch.randn(count, 4)\n    return x, "
MODELS = {
    "a class": ("def model():\n    return nn.Linear", "model(): found the class Linear"),
    "nothing": ("def model():\n    nn.Linear(4, 3)", "model(): found NoneType, expected a trained network"),
    "other weights": (
        "def model():\n    net = nn.Linear(4, 3)\n    net.load_state_dict({'w': torch.zeros(3, 4)})\n    return net",
        "Missing key(s) in state_dict",
        "r.py:",
    ),
    "a list of layers": ("def model():\n    return nn.ModuleList([nn.Linear(4, 3)])", "nn.Sequential(*layers)"),
    "a state": (
        "def model():\n    return nn.Linear(4, 3).state_dict()",
        "load this state into a network first",
    ),
    "time first": (
        "class Last(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.lstm = nn.LSTM(4, 3)\n"
        "    def forward(self, x):\n        return self.lstm(x)[0][-1]\ndef model():\n    return Last()\n"
        "def data(seed, count=60):\n    return torch.randn(count, 5, 4), torch.arange(count) % 3\n"
        "def train_data():\n    return [data(0)]\ndef calibration_data():\n    return [data(1)]",
        "found (5, 3), expected a tensor of shape (2, outputs)",
        "batch_first=True",
    ),
    "images with channels last": (
        "def model():\n    return nn.Sequential(nn.Conv2d(3, 3, 2), nn.Flatten())\n"
        "def data(seed, count=60):\n    return torch.rand(count, 4, 4, 3), torch.arange(count) % 3\n"
        "def train_data():\n    return [data(0)]\ndef calibration_data():\n    return [data(1)]",
        "give images as (channels, height, width), such as x.permute(0, 3, 1, 2)",
    ),
    "images without channels": (
        "def model():\n    return nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten())\n"
        "def data(seed, count=60):\n    return torch.rand(count, 4, 4), torch.arange(count) % 3\n"
        "def train_data():\n    return [data(0)]\ndef calibration_data():\n    return [data(1)]",
        "give images as (channels, height, width), such as x.unsqueeze(1) of a batch",
    ),
    "flat images": (
        "def model():\n    return nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten())",
        "give images as (channels, height, width), such as x.reshape(-1, channels, height, width) of a batch",
    ),
    "tokens as floats": (
        "def model():\n    return nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 3))",
        "give tokens as whole numbers, x.long()",
    ),
    "tokens beyond the vocabulary": (
        "def model():\n    return nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 3))\n"
        "def data(seed, count=60):\n    return 9 + torch.arange(count)[:, None].expand(-1, 4), torch.arange(count) % 3",
        "give the nn.Embedding a row for each token, or leave out the tokens beyond",
    ),
    "tokens beyond the table of a bag": (
        "def model():\n    return nn.Sequential(nn.EmbeddingBag(9, 3), nn.Linear(3, 3))\n"
        "def data(seed, count=60):\n    return 9 + torch.arange(count)[:, None].expand(-1, 4), torch.arange(count) % 3",
        "give the nn.Embedding a row for each token, or leave out the tokens beyond",
    ),
    "softmax": (
        "def model():\n    return nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))",
        "every row sums to 1",
        SUPPORTED,
    ),
    "sigmoid": (
        f"def model():\n    return nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())\n{ONE_OUTPUT}(x[:, 0] > 0).float()",
        "a probability",
        "nn.BCEWithLogitsLoss",
        SUPPORTED,
    ),
    "logits and no weights": (
        "class Still(Layered):\n    @torch.no_grad()\n    def forward(self, x):\n        return self.layer(x)\n"
        "def model():\n    return Still()",
        "outputs that depend on no weight",
        "torch.no_grad()",
        SUPPORTED,
    ),
    "NumPy": (
        "class Numpy(Layered):\n    def forward(self, x):\n"
        "        return torch.as_tensor(np.tanh(self.layer(x).numpy()))\ndef model():\n    return Numpy()",
        "fails where derivatives are asked for",
        "np.tanh",
        SUPPORTED,
    ),
    "the class": (
        "class Chosen(Layered):\n    def forward(self, x):\n        return self.layer(x).argmax(1)\n"
        "def model():\n    return Chosen()",
        "found dtype torch.int64, expected floating point: the logits, not the argmax of them",
        SUPPORTED,
    ),
    "a GPU that is not there": (
        "class Moved(Layered):\n    def forward(self, x):\n        return self.layer(x.to('cuda:99'))\n"
        "def model():\n    return Moved()",
        "cannot process the inputs of train_data()",
        "x.to('cuda:99')",
        SUPPORTED,
    ),
    "no values": ("def model():\n    return nn.Linear(4, 3, device='meta')", "on the device 'meta'", SUPPORTED),
    "no forward": ("def model():\n    return nn.ModuleList([nn.Linear(4, 3)])", 'missing the required "forward"'),
    "a further argument": (
        "class Two(Layered):\n    def forward(self, x, mask):\n        return self.layer(x * mask)\n"
        "def model():\n    return Two()",
        "missing 1 required positional argument: 'mask'",
        "inputs in a dict or a tuple",
        SUPPORTED,
    ),
    "a series along the batch": (
        "class Series(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.cells, self.layer = nn.LSTM(4, 8), nn.Linear(8, 3)\n"
        "    def forward(self, x):\n        return self.layer(self.cells(x.unsqueeze(1))[0][:, 0])\n"
        "def model():\n    return Series()",
        "depend on the other examples of its batch",
        "batch_first=True",
        SUPPORTED,
    ),
    "weights without measure": (
        "def model():\n    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))\n"
        "    net[0].weight.data.mul_(1e38)\n    return net",
        "none with curvature",
        "logits are so large",
    ),
    "classes from 1 on": (
        "def data(seed, count=60):\n    x = torch.randn(count, 4)\n    return x, torch.randint(1, 4, (count,))",
        "found class numbers from 1 to 3, expected 0 to 2",
        "give targets - 1",
    ),
    "too few outputs": ("def model():\n    return nn.Linear(4, 2)", "class numbers from 0 to 2, expected 0 to 1"),
    "ages for classes": (
        f"def model():\n    return nn.Linear(4, 1)\n{ONE_OUTPUT}torch.randint(20, 80, (count,))",
        "likelihood='regression'",
    ),
    "a choice of nothing": (
        "config = FitConfig(selection=lambda context: None)",
        "selection: found None, expected different positions among the candidate_weights",
    ),
    "names for another number": ("class_names = list('abcd')", "class_names: found", "expected 3 names"),
    "labels for another number": (
        f"def model():\n    return nn.Linear(4, 5)\n{ONE_OUTPUT}(x > 0).float()",
        "found 4 columns of 0 and 1 for a model with 5 outputs",
    ),
    "another input": (
        "def model():\n    return nn.Linear(5, 3)",
        "cannot process the inputs",
        "shape (60, 4)",
        SUPPORTED,
    ),
    "lazy": ("def model():\n    return nn.Sequential(nn.LazyLinear(3))", "'0.weight' without a shape", SUPPORTED),
    "other names": (
        "class Pair(Layered):\n    def forward(self, left, right):\n        return self.layer(left + right)\n"
        "def model():\n    return Pair()\n"
        "def train_data():\n    x, y = data(0)\n    return {'a': x, 'b': x}, y\ncalibration_data = train_data",
        "found a, b for a forward of left, right",
    ),
    "not a number": (
        "def model():\n    net = nn.Linear(4, 3)\n    net.weight.data[0, 0] = float('nan')\n    return net",
        "found NaN or infinity in 'weight'",
    ),
    "dropout that stays": (
        "class Random(Layered):\n    def forward(self, x):\n        return self.layer(nn.functional.dropout(x))\n"
        "def model():\n    return Random()",
        "other outputs the second time",
        "training=self.training",
        SUPPORTED,
    ),
    "probabilities of three classes": (
        "def model():\n    return nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())",
        "the last operation is a sigmoid",
        "nn.CrossEntropyLoss",
        SUPPORTED,
    ),
    "the length for the shape": (
        "class Token(Layered):\n    def __init__(self):\n        super().__init__()\n"
        "        self.start = nn.Parameter(torch.zeros(1, 4))\n    def forward(self, x):\n"
        "        return self.layer(torch.cat([self.start.expand(len(x), -1)[:, :1], x[:, 1:]], 1))\n"
        "def model():\n    return Token()",
        "take x.shape[0] where it is needed, not len(x)",
        SUPPORTED,
    ),
    "quantised": (
        "def model():\n    net = nn.Sequential(nn.Linear(4, 3))\n"
        "    return torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)",
        "found the quantised layer '0'",
        SUPPORTED,
    ),
    "a mapping without logits": (
        "class Mapped(Layered):\n    def forward(self, x):\n        return {'scores': self.layer(x), 'other': x}\n"
        "def model():\n    return Mapped()",
        "found dict of 'scores', 'other'",
        SUPPORTED,
    ),
    "a mean of the batch": (
        "class Mixing(Layered):\n    def forward(self, x):\n        return self.layer(x - x.mean(0))\n"
        "def model():\n    return Mixing()",
        "depend on the other examples of its batch",
        SUPPORTED,
    ),
    "an if": (
        "class Branch(Layered):\n    def forward(self, x):\n"
        "        return self.layer(x) if x.sum() > 0 else self.layer(-x)\ndef model():\n    return Branch()",
        "torch.where",
        SUPPORTED,
    ),
    "no weights": ("def model():\n    return nn.Flatten()", "found no trainable parameter", SUPPORTED),
    "TorchScript": ("def model():\n    return torch.jit.script(nn.Linear(4, 3))", "TorchScript", SUPPORTED),
}
OF_THE_MODEL = {
    "within": ("--within foo", "within: found 'foo', expected a module of the network such as 0, 1, 2"),
    "added weights": ("--added-weights foo", "added_weights: found 'foo', which is no such layer", "'0', '2'"),
    "memory": ("--memory-budget 1MiB", "memory_budget: found 1048576 bytes", "expected at least"),
}


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit:DeprecationWarning",
    "ignore:.*torch.ao.quantization:DeprecationWarning",
    "ignore:torch.quantize_per",
)
@pytest.mark.parametrize(("change", "words"), [(line, words) for line, *words in MODELS.values()], ids=MODELS)
def test_in_a_model(change: str, words: list[str], here: Path) -> None:
    (here / "r.py").write_text(f"{RECIPE}{change}\n")
    told(run("fit", "r.py", "--out", "x"), *words)
    assert not (here / "x").exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("options", "words"), [(o, words) for o, *words in OF_THE_MODEL.values()], ids=OF_THE_MODEL)
def test_in_an_option_that_the_model_refutes(options: str, words: list[str]) -> None:
    told(run("fit", "good.py", "--out", "x", *options.split()), *words)


WAITS = """
import time
def model():
    import pathlib
    pathlib.Path("training").touch()
    time.sleep(600)
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(2, 130, id="Ctrl-C"), pytest.param(15, 143, id="SIGTERM", marks=pytest.mark.slow)],
)
def test_a_stopped_fit_says_that_nothing_is_kept(number: int, status: int, here: Path) -> None:
    (here / "r.py").write_text(f"{RECIPE}{WAITS}")
    command = [str(Path(sys.executable).with_name("demur")), "fit", "r.py", "--out", "x"]
    environment = os.environ | {"NO_COLOR": "1"}
    with (
        usual_signals(),
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process,
    ):
        while not (here / "training").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == status
    assert errors.strip().endswith("stopped: nothing is kept, and nothing was written")
