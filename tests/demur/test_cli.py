"""The command line: one real fit, inspected and evaluated; errors in one line, exit code 2; serving without torch."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.fit_options import number_or_word
from demur.offline.export.errors import ExportError
from demur.offline.publish import exporter
from demur.service.bundle import read_bundle

RECIPE = """
import torch
from demur.offline import FitConfig

config = FitConfig(
    name="tiny", subnetwork_size=5, selection="random", false_reject_rate=0.1, prior_precision=3.0, device="cpu", seed=1
)

def class_names():
    return ["low", "high"]

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))

def data(seed, shift=0.0):
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(seed)) + shift
    return inputs, (inputs[:, 0] > 0).long()

def train_data():
    return [data(0), data(1)]

def calibration_data():
    return tuple(part.numpy() for part in data(2))

def test_data():
    return data(3)

def foreign_data():
    return data(4, shift=50.0)
"""
# Pretends that torch, and whatever else the service's environment lacks, is not installed, and runs the commands.
WITHOUT_TORCH = """
import contextlib, io, json, sys, traceback, uvicorn

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "onnx", "onnxscript", "sklearn", "scipy", "httpx"}:
            raise ModuleNotFoundError(f"import of {name}")

def run(server, sockets=None):
    print("would serve", server.config.app.title)
    server.started = True

def ended(arguments):
    sys.argv = ["demur", *arguments]
    out, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as error:
            status = error.code or 0
        except BaseException:
            traceback.print_exc()
            status = 1
    return arguments, status, out.getvalue(), errors.getvalue()

sys.meta_path.insert(0, Missing())
uvicorn.Server.run = run
from demur.__main__ import main
print(json.dumps([ended(arguments) for arguments in json.loads(sys.argv[1])]))
"""


def demur(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "recipe.py"
    path.write_text(text)
    return path


@dataclass(frozen=True)
class Fitted:
    result: Result
    recipe: Path
    bundle: Path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """One real fit, with options that replace four fields of the recipe's configuration."""
    folder = tmp_path_factory.mktemp("a-folder-whose-name-is-long-enough-to-be-wrapped-at-eighty-columns")
    recipe, bundle = write(folder), folder / "bundles" / "tiny"
    options = ("--subnetwork-size", "0.25", "--prior-precision", "gridsearch", "--seed", "4", "--version", "2")
    return Fitted(demur("fit", recipe, "--out", bundle, *options), recipe, bundle)


def test_fit_writes_a_bundle_and_shows_its_card(fitted: Fitted) -> None:
    assert fitted.result.exit_code == 0, fitted.result.output
    manifest = read_bundle(fitted.bundle).manifest
    assert manifest.version == "2"
    assert (manifest.name, manifest.parameter_count, manifest.subnetwork_size) == ("tiny", 44, 11)
    assert (manifest.prior.method, manifest.selection.seed, manifest.selection.strategy) == ("gridsearch", 4, "random")
    assert manifest.calibration.false_reject_rate == 0.1
    assert manifest.class_names == ("low", "high")
    assert manifest.metrics["train_examples"] == 80
    assert "S = 11 of D = 44 weights (random)" in fitted.result.stdout


def test_inspect_shows_one_value_a_line(fitted: Fitted) -> None:
    result = demur("inspect", fitted.bundle)
    assert result.exit_code == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert ["bundle", str(fitted.bundle)] in lines
    assert ["digest", read_bundle(fitted.bundle).digest] in lines


def test_inspect_shows_brackets_as_they_are(fitted: Fitted, tmp_path: Path) -> None:
    """The terminal library would take [draft] for a colour."""
    folder = shutil.copytree(fitted.bundle, tmp_path / "model[draft]")
    assert "model[draft]" in demur("inspect", folder).stdout


def test_evaluate_compares_with_the_plain_network(fitted: Fitted, tmp_path: Path) -> None:
    file = tmp_path / "figures" / "tiny.json"
    result = demur("evaluate", fitted.bundle, fitted.recipe, "--json", file)
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text())
    assert found["digest"] == read_bundle(fitted.bundle).digest
    assert (found["examples"], found["ood_examples"]) == (40, 40)
    low, high = found["laplace"]["accuracy"]["interval"]
    assert {"ece", "augrc", "set_coverage_95", "ood_fpr_95"} <= found["laplace"].keys()
    assert f"{found['laplace']['accuracy']['value']:.4f} [{low:.4f}, {high:.4f}]" in result.stdout
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_evaluate_names_the_function_that_the_recipe_lacks(fitted: Fitted, tmp_path: Path) -> None:
    recipe = write(tmp_path, RECIPE.replace("def test_data", "def other_data"))
    refused(demur("evaluate", fitted.bundle, recipe), "found no function test_data()")


def test_evaluate_wants_the_recipe_of_the_bundle(fitted: Fitted, tmp_path: Path) -> None:
    other = RECIPE + '\nconfig = FitConfig(likelihood="regression")\n'
    message = "config.likelihood: found 'regression', expected 'classification' as in the bundle"
    refused(demur("evaluate", fitted.bundle, write(tmp_path, other)), message)
    swapped = RECIPE.replace('["low", "high"]', '["high", "low"]')
    message = "class_names: found ['high', 'low'], expected ['low', 'high'] as in the bundle"
    refused(demur("evaluate", fitted.bundle, write(tmp_path, swapped)), message)


def test_serve_loads_a_bundle_without_torch(fitted: Fitted) -> None:
    (done,) = without_torch(("serve", fitted.bundle))
    assert done.status == 0, done
    assert "would serve" in done.stdout


# --------------------------------------------------------------------------- errors


def refused(result: Result, *words: str) -> None:
    """Exit code 2, one line on stderr, no traceback."""
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert all(word in result.stderr for word in words), result.stderr


def test_a_check_says_what_a_fit_takes_and_writes_nothing(tmp_path: Path) -> None:
    result = demur("check", write(tmp_path), "--memory-budget", "1GiB")
    assert result.exit_code == 0, result.output
    for words in ("D = 44 weights", "MiB at least", "budget 1.0 GiB"):
        assert words in result.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["recipe.py"]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ('class_names = ["a", "b", "c", "d", "e"]', "class_names: found"),
        ("def foreign_data():\n    return torch.randn(20, 99), torch.zeros(20)", "foreign_data()"),
    ],
)
def test_a_check_refuses_what_a_fit_of_the_recipe_refuses(more: str, found: str, tmp_path: Path) -> None:
    recipe = write(tmp_path)
    recipe.write_text(f"{recipe.read_text()}\n{more}\n")
    for command in (["check", recipe], ["fit", recipe, "--out", tmp_path / "bundle"]):
        refused(demur(*command), found)


def test_a_budget_that_is_too_small_is_refused_with_one_that_would_do(tmp_path: Path) -> None:
    result = demur("fit", write(tmp_path), "--out", tmp_path / "bundle", "--memory-budget", "1MiB")
    refused(result, "memory_budget")


BAD_OPTIONS = [
    ("--memory-budget", "much", "memory_budget"),
    ("--within", "layer9", "within"),
    ("--added-weights", "layer9", "added_weights: found 'layer9', which is no such layer"),
    ("--uncertainty-budget", "0", "uncertainty_budget"),
    ("--subnetwork-size", "0", "subnetwork_size"),
    ("--subnetwork-size", "1.5", "subnetwork_size"),
    ("--subnetwork-size", "many", "subnetwork_size"),
    ("--selection", "best", "selection: "),
    ("--prior-precision", "-1", "prior_precision"),
    ("--prior-precision", "nan", "prior_precision"),
    ("--false-reject-rate", "2", "false_reject_rate: "),
    ("--false-reject-rate", "0.001", "expected at least 999"),
    ("--seed", "-1", "seed: "),
    ("--device", "tpu", "device: "),
    ("--device", "cuda:99", "device: "),
    ("--name", "a/b", "name: "),
    ("--likelihood", "poisson", "likelihood: "),
    ("--temperature", "0", "temperature: "),
    ("--selection-options", "{", "selection_options: found '{', expected a JSON object"),
    ("--selection-options", "3", "selection_options: "),
    ("--selection-options", '{"live_only": true, "live_only": false}', "selection_options: found "),
]


@pytest.mark.parametrize(("option", "value", "words"), BAD_OPTIONS, ids=[" ".join(case[:2]) for case in BAD_OPTIONS])
def test_a_bad_option_of_fit(tmp_path: Path, option: str, value: str, words: str) -> None:
    result = demur("fit", write(tmp_path), "--out", tmp_path / "bundle", option, value)
    refused(result, words)
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["recipe.py"]


def test_a_recipe_that_does_not_exist(tmp_path: Path) -> None:
    refused(demur("fit", tmp_path / "none.py", "--out", tmp_path / "bundle"), "none.py: no such file")


def test_a_recipe_whose_input_spec_does_not_fit(tmp_path: Path) -> None:
    recipe = write(tmp_path, RECIPE + "\nfrom demur.offline import InputSpec\ninput_spec = InputSpec(shape=(5,))\n")
    refused(demur("fit", recipe, "--out", tmp_path / "bundle"), "input_spec: found (5,)", "expected (4,)")


def test_a_destination_that_is_no_bundle_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "out" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("years of work")
    refused(demur("fit", write(tmp_path), "--out", precious.parent), "exists and is not a bundle")
    assert precious.read_text() == "years of work"


def test_an_error_stops_the_progress_bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the bar is drawn again below the error, and a terminal's cursor stays hidden."""

    def export(*_: object) -> None:
        raise ExportError("no such operator")

    before = set(threading.enumerate())
    monkeypatch.setattr(exporter, "export_variance", export)
    result = demur("fit", write(tmp_path), "--out", tmp_path / "bundle")
    assert result.exit_code == 2
    assert "no such operator" in result.stderr
    started = {thread for thread in threading.enumerate() if thread.name != "tqdm_monitor"}  # a library's own
    for thread in started - before:
        thread.join(10)
        assert not thread.is_alive(), "a thread still draws"


def test_inspect_refuses_what_is_no_bundle(tmp_path: Path) -> None:
    refused(demur("inspect", tmp_path / "none"), "none: no such folder")
    refused(demur("inspect", tmp_path), "manifest.json: missing file")
    (tmp_path / "manifest.json").write_text(json.dumps({"format": "other"}))
    refused(demur("inspect", tmp_path), "manifest.json: format: expected 'demur-bundle'")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000", 1000), ("1", 1), ("1.0", 1.0), ("0.1", 0.1), ("1e-3", 0.001), ("marglik", "marglik")],
)
def test_numbers_on_the_command_line(text: str, value: Any) -> None:
    assert number_or_word(text) == value
    assert type(number_or_word(text)) is type(value)


# --------------------------------------------------------------------------- processes


class Ended(NamedTuple):
    """A command and how it ended."""

    arguments: list[str]
    status: int
    stdout: str
    stderr: str


def without_torch(*commands: Sequence[object]) -> list[Ended]:
    """The commands, one after the other in one process: no import of one helps another to what is not installed."""
    given = json.dumps([[str(argument) for argument in arguments] for arguments in commands])
    code = [sys.executable, "-c", WITHOUT_TORCH, given]
    done = subprocess.run(code, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [Ended(*each) for each in json.loads(done.stdout)]


@pytest.mark.parametrize("command", sorted(typer.main.get_group(app).commands))
def test_every_command_has_help(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Usage" in shown.output


def test_help_needs_no_torch() -> None:
    commands = ("--help",), ("serve", "--help"), ("fit", "--help"), ("inspect", "--help")
    found = without_torch(*commands)
    assert len(found) == len(commands)
    for done in found:
        assert done.status == 0, done
        assert "Usage: demur" in done.stdout, done


def test_a_bundle_is_refused_without_torch(tmp_path: Path) -> None:
    for done in without_torch(("serve", tmp_path), ("inspect", tmp_path)):
        assert done.status == 2, done
        assert "manifest.json: missing file" in done.stderr, done
        assert "Traceback" not in done.stderr, done


def test_the_installed_command_fails_in_one_line(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("demur")
    done = subprocess.run(
        [script, "fit", tmp_path / "none.py", "--out", tmp_path / "bundle"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")


def test_where_torch_is_not_installed_fit_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from demur.__main__ import main; main()"
    command = [sys.executable, "-c", code, "fit", str(write(tmp_path)), "--out", str(tmp_path / "bundle")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert (
        done.stderr == "error: this command needs the offline job: in a checkout of Demur, pip install '.[offline]'\n"
    )


def test_a_default_stays_one_where_an_option_is_given(tmp_path: Path) -> None:
    """As many weights as the network has, where it has fewer than the default."""
    recipe = write(tmp_path, RECIPE.replace("subnetwork_size=5, ", ""))
    result = demur("check", recipe, "--seed", "3")
    assert result.exit_code == 0, result.stderr
    assert "S = 44 of them at most" in result.output
