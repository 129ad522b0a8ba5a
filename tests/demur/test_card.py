"""What a model card says of foreign inputs and warnings."""

import re
from pathlib import Path

import pytest

from demur.card import print_card
from tests.support.added import ADDED, write_added
from tests.support.bundles import FEATURE_SPEC, write_linear


def test_foreign_inputs_and_warnings_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_card(write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).path)
    card = capsys.readouterr().out
    assert "rejected of obviously foreign inputs: noise 75 %, constant 100 %\n" in card
    assert "made by hand\n" in card
    assert "\x1b" not in card, "no colours but on a terminal"


def test_warnings_that_the_fit_has_said_are_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_card(write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).path, warned=True)
    assert "made by hand" not in capsys.readouterr().out


def test_added_weights_and_temperatures_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_card(write_added(tmp_path).path)
    card = capsys.readouterr().out
    assert "256 features of body.3, head\n" in card
    assert f"{ADDED.explanation}\n" in card
    assert "0.5, of the plain network 1.5\n" in card


def test_what_uncertainty_buys_and_costs_is_shown_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "calibration_log_likelihood"
    metrics = {f"{name}_plain": -0.5, f"{name}_map": -0.25, name: -0.125, "calibration_accuracy": 0.75}
    print_card(write_added(tmp_path, metrics=metrics).path)
    card = capsys.readouterr().out
    assert "plain network -0.500, temperature alone -0.250, as served -0.125\n" in card
    assert "calibration accuracy" in card
    assert "calibration error" not in card


def test_a_terminal_shows_warnings_in_red(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    print_card(write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).path)
    assert "\x1b[31mmade by hand" in capsys.readouterr().out


def test_a_terminal_wraps_between_words_and_below_the_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).path
    print_card(path)
    words = capsys.readouterr().out.split()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    print_card(path)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, shown.splitlines())) <= 60
    assert {word for word in words if len(word) < 30} <= set(shown.split())  # longer ones fill lines
