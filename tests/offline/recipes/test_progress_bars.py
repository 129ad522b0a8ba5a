"""What a fit shows: in a real terminal of 80 x 24 and of 40 columns, and where there is none."""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

import pytest
from typer.testing import CliRunner

from demur.cli import app

ROOT = Path(__file__).parents[3]
COMMAND = Path(sys.executable).with_name("demur")
RECIPE = """
import torch
from demur.offline import FitConfig

config = FitConfig(name="tiny", subnetwork_size=20, false_reject_rate=0.1, device="cpu")

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))

def data(seed):
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, 0] > 0).long()

def train_data():
    return data(0)

def calibration_data():
    return data(1)
"""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


SELECTION = ("Live weights",)
# A fit that chooses its weights by chance and searches for nothing has the same bars, and fewer of them.
SHORT = ("--selection", "random", "--prior-precision", "3.0")


def write(folder: Path, *options: str) -> list[str]:
    (folder / "recipe.py").write_text(RECIPE)
    return ["fit", "recipe.py", "--out", "bundle", *options]


def in_terminal(command: list[str], folder: Path, columns: int) -> str:
    """Everything that the command writes to a terminal of 24 lines."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        command, cwd=folder, env=environment | {"TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        written += part
        if not part:
            break
    os.close(ours)
    assert process.wait(120) == 0, written.decode()
    return written.decode()


def lines_of(text: str) -> list[str]:
    """What stays on the screen: of each line, what was drawn last."""
    return [ESCAPES.sub("", line).split("\r")[-1].rstrip() for line in text.replace("\r\n", "\n").split("\n")]


def check_stages(lines: list[str], selection: tuple[str, ...]) -> None:
    """One line a stage, each name once but for what is done in several places of the network, and no table twice."""
    stages = [line for line in lines if re.match(r"  [A-Z][\w: ]+ +\d+(\.\d)? s", line)]
    names = [re.split(r"  +", line.strip())[0] for line in stages]
    once = [name for name in names if not re.search("gradients|shift", name.lower())]
    assert len(set(once)) == len(once), lines
    assert {"Trial export", *selection, "Curvature", "Export to ONNX", "Verification"} <= set(names), lines
    assert " ".join(lines).count("at least, beside the data") == 1  # in lines of 40 columns its words are wrapped


@pytest.mark.slow
def test_without_a_terminal_every_stage_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, write(tmp_path))
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    check_stages(lines, SELECTION)
    assert "\x1b" not in done.stdout
    assert lines[-2:] == ["Report: bundle/report.html", "Serve it: demur serve bundle"]


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "options", "selection"), [(80, (), SELECTION), (40, SHORT, ())], ids=["80", "40"])
def test_in_a_terminal_the_running_stage_is_seen(
    tmp_path: Path, columns: int, options: tuple[str, ...], selection: tuple[str, ...]
) -> None:
    written = in_terminal([str(COMMAND), *write(tmp_path, *options)], tmp_path, columns)
    check_stages(lines_of(written), selection)
    drawn = [ESCAPES.sub("", line) for line in re.split(r"[\r\n]+", written)]
    running = [line for line in drawn if re.search(r"Trial export.* 0/1", line)]
    assert running, "the running stage was never drawn"
    assert all(len(line.rstrip()) <= columns for line in running)
    assert not [line for line in drawn if line.strip() == "..."], "the running stage hides"
