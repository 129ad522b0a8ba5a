"""The table of `demur evaluate`, and its JSON file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from demur.service.bundle import read_manifest
from demur.service.format.files import check_writable, misplaced_file, replace_file
from demur.service.inference.policy import Policy

from .card import console

if TYPE_CHECKING:
    from demur.offline.evaluation.evaluate import Evaluation
    from demur.offline.evaluation.measured import Measured

NAMES = {
    "log_likelihood": "log-likelihood",
    "label_accuracy": "accuracy of labels",
    "brier": "Brier score",
    "ece": "ECE",
    "adaptive_ece": "adaptive ECE",
    "aurc": "AURC",
    "augrc": "AUGRC",
    "rmse": "RMSE",
    "false_reject_rate": "false-reject rate",
    "accepted_accuracy": "accuracy of the accepted",
    "certified_accepted_share": "certified: share accepted",
    "certified_accepted_accuracy": "certified: accuracy of these",
    "ood_reject_rate": "OOD reject rate",
    "ood_auroc": "OOD AUROC",
    "ood_fpr_95": "OOD FPR at 95 % TPR",
}
EACH = ("rmse", "accuracy", "log_likelihood", "ece", "coverage_95", "conformal_coverage_95", "set_coverage_95")
MOST_SHOWN = 30  # targets or labels; the JSON file has all
LEVELLED = {
    "set_coverage": "sets hold the truth",
    "set_size": "mean size of sets",
    "undecided": "share of labels undecided",
    "coverage": "Gaussian intervals hold",
    "conformal_coverage": "conformal intervals hold",
}


def print_evaluation(evaluation: "Evaluation") -> None:
    """One figure a line: of the Laplace approximation, and of the plain network."""
    counted = f"{evaluation.examples:,} test examples"
    if evaluation.foreign_examples:
        counted += f", {evaluation.foreign_examples:,} out of distribution"
    table = Table(box=None, pad_edge=False, caption=f"{counted}; 95 % intervals in brackets", caption_justify="left")
    table.add_column("")
    table.add_column("Laplace", no_wrap=True)
    table.add_column("plain network", no_wrap=True)
    several = len(evaluation.by_output) > 1
    for name, figure in evaluation.laplace.items():
        if name == "rmse" and several:  # over values in several units; each has its own below
            continue
        table.add_row(figure_name(name), _shown(figure), _shown(evaluation.plain.get(name)))
    console().print(table)
    if 1 < len(evaluation.by_output) <= MOST_SHOWN:
        console().print("", _by_output(evaluation))


def _by_output(evaluation: "Evaluation") -> Table:
    """A target or a label a line, with the figures of the Laplace approximation that fit a screen."""
    first = next(iter(evaluation.by_output.values()))[0]
    shown = [name for name in first if name in EACH]
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in shown:
        table.add_column(figure_name(name), justify="right")
    for output, (laplace, _) in evaluation.by_output.items():
        table.add_row(escape(output), *(f"{laplace[name].value:.4g}" if name in laplace else "" for name in shown))
    return table


def figure_name(name: str) -> str:
    """What people call a figure: "set_coverage_95" is "sets hold the truth, 95 %"."""
    stem, _, level = name.rpartition("_")
    if stem in LEVELLED:
        return f"{LEVELLED[stem]}, {level} %"
    return NAMES.get(name, name.replace("_", " "))


def _shown(figure: "Measured | None") -> str:
    if figure is None:
        return ""
    text = f"{figure.value:.4f}"
    return text if figure.interval is None else f"{text} \\[{figure.interval[0]:.4f}, {figure.interval[1]:.4f}]"


def evaluation_json(bundle: Path, evaluation: "Evaluation", policy: Policy) -> dict[str, Any]:
    """The figures, of which bundle they are, and with which options it answered."""
    manifest, digest = read_manifest(bundle)
    model = {"model": manifest.name, "version": manifest.version, "digest": digest, "task": manifest.task}
    return model | {"options": policy.model_dump()} | evaluation.as_json()


def check_json(path: Path) -> None:
    """`ValueError` for a place that holds anything but an earlier evaluation, `BundleError` for one without access."""
    if (problem := misplaced_file(path)) is not None:
        raise ValueError(f"--json {path}: {problem}")
    if path.exists() and not _is_evaluation(path):
        raise ValueError(f"--json {path}: exists and is no evaluation; nothing was overwritten, give another name")
    check_writable(path)


def _is_evaluation(path: Path) -> bool:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and {"model", "digest", "task"} <= content.keys()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write the file atomically; raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
