"""`score` and `evaluate` with a service's settings as options: the numbers of a service with these settings."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.service.bundle import InputSpec
from demur.service.inference.predictor import Predictor
from demur.service.models.loading import load_named
from demur.service.settings import Settings
from tests.support.bundles import write_linear
from tests.support.client import serving
from tests.support.outcomes import draw_inputs, keeping_outcomes

SPEC = InputSpec(shape=(4,))
ROWS = 60
Served = Callable[[str], tuple[Settings, Predictor]]
# What to give `score`, and the service's settings that say the same.
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "rate": ("labelled", ("--false-reject-rate", "0.3"), {"false_reject_rate": 0.3}),
    "rate by class": (
        "labelled",
        ("--reject-by-class", "--false-reject-rate", "0.2"),
        {"reject_by_class": True, "false_reject_rate": 0.2},
    ),
    "accuracy": (
        "labelled",
        ("--accepted-accuracy", "0.7"),
        {"accepted_accuracy": 0.7},
    ),
    "sets": ("labelled", ("--interval-level", "0.6"), {"interval_level": 0.6}),
    "sets by class": (
        "labelled",
        ("--sets-by-class", "--interval-level", "0.6"),
        {"sets_by_class": True, "interval_level": 0.6},
    ),
    "intervals": ("measured", ("--interval-level", "0.8"), {"interval_level": 0.8}),
}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    classes = write_linear(folder / "classes", outputs=3, spec=SPEC).path
    values = write_linear(folder / "values", outputs=2, spec=SPEC, regression=True).path
    return {
        "labelled": keeping_outcomes(classes, folder / "labelled", 900, 900),
        "measured": keeping_outcomes(values, folder / "measured", 200),
    }


@pytest.fixture(scope="module")
def served(bundles: dict[str, Path]) -> Served:
    """A case's settings, and the bundle as a service with these opens it; each only once."""

    @functools.cache
    def open_case(case: str) -> tuple[Settings, Predictor]:
        kind, _, given = CASES[case]
        settings = Settings(bundle=(str(bundles[kind]),), **given)
        (predictor,) = load_named(settings)
        return settings, predictor

    return open_case


def demur(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def scored(bundle: Path, folder: Path, *options: str) -> tuple[list[list[float]], list[dict[str, Any]]]:
    """Inputs, and the rows that `demur score` writes for them."""
    inputs = draw_inputs(Predictor.load(bundle), np.random.default_rng(3), ROWS)
    np.save(folder / "inputs.npy", inputs)
    out = folder / "rows.jsonl"
    result = demur("score", bundle, folder / "inputs.npy", "--out", out, "--force", *options)
    assert result.exit_code == 0, result.output
    return inputs.tolist(), [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES)
def test_rows_are_what_a_service_with_these_settings_answers(
    case: str, bundles: dict[str, Path], served: Served, tmp_path: Path
) -> None:
    kind, options, _ = CASES[case]
    inputs, rows = scored(bundles[kind], tmp_path, *options)
    settings, predictor = served(case)
    with serving(predictor, settings) as client:
        answers = client.predict({"inputs": inputs}).json()["predictions"]
    for row, answer in zip(rows, answers, strict=True):
        assert row["rejected"] is answer["rejected"]
        assert [row["score"], row["p_value"]] == pytest.approx([answer["score"], answer["p_value"]], rel=1e-5)
        if "mean" in row:
            assert row["low"] == pytest.approx(answer["interval"]["low"], rel=1e-5)
            assert row["high"] == pytest.approx(answer["interval"]["high"], rel=1e-5)
        else:
            assert row["probabilities"] == pytest.approx(answer["probabilities"], rel=1e-5)
            assert row["prediction_set"] == (answer["prediction_set"] and answer["prediction_set"]["labels"])
    _, plain = scored(bundles[kind], tmp_path)
    assert rows != plain


@pytest.mark.parametrize("command", ["score", "evaluate"])
@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "labelled",
            ("--accepted-accuracy", "0.9", "--reject-by-class"),
            "found 0.9 and reject_by_class too, expected one",
        ),
        ("labelled", ("--accepted-accuracy", "1"), "accepted_accuracy: found 1.0, expected a number less than 1"),
        ("labelled", ("--accepted-accuracy", "0.9999"), "accepted_accuracy: found"),
        ("labelled", ("--interval-level", "95"), "interval_level: found 95.0, expected a number less than 1"),
        ("labelled", ("--false-reject-rate", "0"), "false_reject_rate: found 0.0, expected a number greater than 0"),
        ("measured", ("--reject-by-class",), "reject_by_class: found a regression, expected a classification"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(
    command: str, kind: str, options: tuple[str, ...], message: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    recipe, inputs = tmp_path / "recipe.py", tmp_path / "inputs.npy"
    recipe.write_text("")
    np.save(inputs, np.zeros((1, 4)))
    files = (inputs, "--out", tmp_path / "rows.csv") if command == "score" else (recipe,)
    result = demur(command, bundles[kind], *files, *options)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_part_with_other_options_is_not_continued(bundles: dict[str, Path], tmp_path: Path) -> None:
    _, rows = scored(bundles["labelled"], tmp_path)
    state = tmp_path / "rows.csv.part.json"
    inputs = np.load(tmp_path / "inputs.npy")
    inputs[ROWS - 1] = np.nan
    np.save(tmp_path / "bad.npy", inputs)
    arguments = ("score", bundles["labelled"], tmp_path / "bad.npy", "--out", tmp_path / "rows.csv", "--batch-size", 20)
    assert demur(*arguments).exit_code == 2
    assert json.loads(state.read_text())["rows"] == 40
    for options, name in (
        (("--reject-by-class",), "reject_by_class False, expected True"),
        (("--interval-level", 0.9), "interval_level 0.95, expected 0.9"),
    ):
        assert f"found a job with {name}" in demur(*arguments, *options).stderr
    assert len(rows) == ROWS


RECIPE = """
import numpy as np

def model(): ...
def test_data():
    kept = np.load({path!r})
    return kept["inputs"], kept["targets"]
"""


@pytest.mark.parametrize("case", ["rate by class", "accuracy", "sets", "sets by class", "intervals"])
def test_evaluate_measures_what_a_service_with_these_settings_answers(
    case: str, bundles: dict[str, Path], served: Served, tmp_path: Path
) -> None:
    kind, options, _ = CASES[case]
    settings, predictor = served(case)
    rng = np.random.default_rng(8)
    inputs = draw_inputs(predictor, rng, ROWS)
    regression = predictor.manifest.task == "regression"
    targets = rng.normal(size=(ROWS, 2)) if regression else rng.integers(0, 3, ROWS)
    np.savez(tmp_path / "kept.npz", inputs=inputs, targets=targets)
    recipe = tmp_path / "recipe.py"
    task = "from demur.offline import FitConfig\nconfig = FitConfig(likelihood='regression')\n" if regression else ""
    recipe.write_text(task + RECIPE.format(path=str(tmp_path / "kept.npz")))
    result = demur("evaluate", bundles[kind], recipe, "--json", tmp_path / "figures.json", *options)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "figures.json").read_text())
    with serving(predictor, settings) as client:
        answers = client.predict({"inputs": inputs.tolist()}).json()["predictions"]
    rejected = np.array([answer["rejected"] for answer in answers])
    figures = {name: figure["value"] for name, figure in found["laplace"].items()}
    assert figures["false_reject_rate"] == pytest.approx(rejected.mean())
    percent = f"{100 * settings.interval_level:g}"
    if regression:
        low, high = (np.array([answer["interval"][end] for answer in answers]) for end in ("low", "high"))
        held = ((low <= targets) & (targets <= high)).mean()
        assert figures[f"conformal_coverage_{percent}"] == pytest.approx(held)
    else:
        labels = np.array([int(answer["label"].removeprefix("class ")) for answer in answers])
        assert figures["accepted_accuracy"] == pytest.approx((labels == targets)[~rejected].mean())
    if case in ("sets", "sets by class"):
        sets = [answer["prediction_set"]["labels"] for answer in answers]
        held = np.mean([f"class {y}" in labels for y, labels in zip(targets, sets, strict=True)])
        assert figures[f"set_coverage_{percent}"] == pytest.approx(held)
        assert figures[f"set_size_{percent}"] == pytest.approx(np.mean([len(labels) for labels in sets]))
    assert found["options"]["reject_by_class"] is settings.reject_by_class
