"""A recipe and the modules beside it: found early and late, kept apart from another recipe's, gone afterwards."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.offline.recipes.load import Recipe, load_recipe
from demur.service.bundle import read_manifest

ROOT = Path(__file__).parents[3]
RECIPE = """
import torch
from torch.utils.data import DataLoader
from data_beside import Points
from demur.offline import FitConfig

config = FitConfig(subnetwork_size=5, selection="random", false_reject_rate=0.1, prior_precision=3.0, device="cpu")

def model():
    from networks.small import network
    return network()

def train_data():
    return DataLoader(Points(60, 0), batch_size=20, num_workers=WORKERS)

def calibration_data():
    return DataLoader(Points(40, 1), batch_size=20)
"""
DATA = """
import torch

class Points(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, place):
        from labels_beside import label  # imported for the first time while the fit reads the data

        return self.inputs[place], label(self.inputs[place])
"""
FILES = {
    "data_beside.py": DATA,
    "labels_beside.py": "def label(point):\n    return int(point.sum() > 0)\n",
    "networks/__init__.py": "",
    "networks/small.py": """
import torch

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
""",
}


def write(folder: Path, workers: str = "0") -> Path:
    for name, text in (FILES | {"recipe.py": RECIPE.replace("WORKERS", workers)}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "recipe.py"


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param("0", id="in-process"),
        pytest.param("1, multiprocessing_context='spawn'", id="spawned-worker", marks=pytest.mark.slow),
    ],
)
def test_a_fit_finds_what_lies_beside_the_recipe(tmp_path: Path, workers: str) -> None:
    path, modules = list(sys.path), set(sys.modules)
    out = tmp_path / "out" / "bundle"
    result = CliRunner().invoke(app, ["fit", str(write(tmp_path, workers)), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert read_manifest(out)[0].metrics["train_examples"] == 60
    assert sys.path == path
    assert not {name for name in set(sys.modules) - modules if name.startswith(("data_beside", "labels", "networks"))}


OWN = DATA.replace(
    "from labels_beside import label  # imported for the first time while the fit reads the data", "label = sign"
)


@pytest.mark.slow
@pytest.mark.usefixtures("without_export")  # which begins once all data are read
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_are_not_forked_find_what_the_recipe_defines(tmp_path: Path, method: str) -> None:
    """A data set, and a function that makes batches; both of the recipe itself, as on macOS, or Python 3.14."""
    path = write(tmp_path, f"1, multiprocessing_context={method!r}, collate_fn=together")
    own = f"""{OWN}
from labels_beside import label as sign

def together(examples):
    return torch.utils.data.default_collate(examples)
"""
    path.write_text(path.read_text().replace("from data_beside import Points\n", own))
    (tmp_path / "data_beside.py").unlink()
    before = list(sys.path)
    out = tmp_path / "out" / "bundle"
    result = CliRunner().invoke(app, ["fit", str(path), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert read_manifest(out)[0].metrics["train_examples"] == 60
    assert sys.path == before


@pytest.mark.slow
def test_so_do_the_processes_of_torchrun(tmp_path: Path) -> None:
    out = tmp_path / "out" / "bundle"
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "-m",
        "demur",
    ]
    done = subprocess.run(
        [*launch, "fit", str(write(tmp_path)), "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert read_manifest(out)[0].metrics["train_examples"] == 60


def recipe(folder: Path, answer: str) -> Recipe:
    """Its answer comes from `shared_name`, which it imports at once, and `shared_late`, which it imports when asked."""
    folder.mkdir()
    (folder / "shared_name.py").write_text(f"WORD = {answer!r}\nclass Word: pass\n")
    (folder / "shared_late.py").write_text(f"WORD = {answer!r}\n")
    (folder / "recipe.py").write_text("""
import shared_name

def class_names():
    import shared_late
    import shared_name as again
    assert again.Word is shared_name.Word
    return [shared_name.WORD, shared_late.WORD]
""")
    return load_recipe(folder / "recipe.py")


def test_two_recipes_may_have_a_module_of_the_same_name(tmp_path: Path) -> None:
    one, two = recipe(tmp_path / "one", "first"), recipe(tmp_path / "two", "second")
    for _ in range(2):  # in turns: each keeps its own
        assert one.class_names == ("first", "first")
        assert two.class_names == ("second", "second")
    with one.running(), two.running(), one.running():
        assert importlib.import_module("shared_name").WORD == "second"
    assert one.module.__name__ != two.module.__name__


def test_what_was_there_before_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the process that only happens to have the name of one beside the recipe, loaded later."""
    found = recipe(tmp_path / "one", "first")
    other = type(sys)("shared_name")
    monkeypatch.setitem(sys.modules, "shared_name", other)
    assert found.class_names == ("first", "first")
    assert sys.modules["shared_name"] is other


def test_libraries_below_the_recipes_folder_stay_loaded(tmp_path: Path) -> None:
    """A virtual environment beside the recipe: its packages are not the recipe's, and are never loaded twice."""
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "installed_there.py").write_text("")
    (tmp_path / "recipe.py").write_text(f"import sys\nsys.path.append({str(packages)!r})\nimport installed_there\n")
    try:
        load_recipe(tmp_path / "recipe.py")
        assert "installed_there" in sys.modules
    finally:
        sys.path.remove(str(packages))
        sys.modules.pop("installed_there", None)


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    path = list(sys.path)
    (tmp_path / "half_beside.py").write_text("")
    (tmp_path / "recipe.py").write_text("import half_beside\nraise KeyError('no')\n")
    with pytest.raises(KeyError):
        load_recipe(tmp_path / "recipe.py")
    assert sys.path == path
    assert "half_beside" not in sys.modules


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_what_no_worker_can_be_given_is_told_in_a_line(tmp_path: Path) -> None:
    path = write(tmp_path, "1, multiprocessing_context='forkserver', collate_fn=lambda examples: examples[0]")
    result = CliRunner().invoke(app, ["fit", str(path), "--out", str(tmp_path / "bundle")])
    assert result.exit_code == 2, result.output
    assert "a worker process of a data loader cannot be given what it needs" in result.stderr
    assert "at the top level of the recipe" in result.stderr
