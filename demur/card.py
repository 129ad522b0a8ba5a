"""Tables for the terminal."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from demur.service.bundle import (
    AddedWeights,
    InputSpec,
    Manifest,
    RejectedShare,
    ScorePart,
    read_manifest,
)
from demur.service.format.manifest import Task
from demur.service.format.steps import STEPS

if TYPE_CHECKING:
    from demur.offline.export.standalone.file import StandaloneFile

WARNING_COLOUR = "red"


def console() -> Console:
    """In a terminal, lines are wrapped between words; elsewhere, each stays whole."""
    return Console(soft_wrap=not Console().is_terminal)


def print_error(message: str) -> None:
    """To the error output; in a terminal, wrapped between words."""
    errors = Console(stderr=True)
    errors.print(message, highlight=False, markup=False, soft_wrap=not errors.is_terminal)


def print_card(bundle: Path, warned: bool = False) -> None:
    """What a bundle is: its manifest in a dozen lines; without its warnings where the fit has said them."""
    manifest, digest = read_manifest(bundle)
    prior, calibration, selection = manifest.prior, manifest.calibration, manifest.selection
    dead = f", {selection.dead_weights} dead weights left out" if selection.dead_weights is not None else ""
    kinds = " or images" if manifest.input.image else ""
    size = f"S = {manifest.subnetwork_size} of D = {manifest.parameter_count} weights"
    rows = {
        "bundle": str(bundle),
        "model": f"{manifest.name} version {manifest.version} ({manifest.task}, {_counted(manifest.outputs)})",
        "digest": digest,
        "input": _inputs(manifest.input, kinds),
        "subnetwork": f"{size} ({selection.strategy}{dead})",
        "prior precision": f"{prior.precision:.4g} ({prior.method}), in the posterior {prior.used:.4g}",
    }
    if selection.explanation is not None:
        rows["chosen"] = selection.explanation
    rows |= _added_rows(manifest.added_weights)
    if manifest.sigma_noise is None:
        rows["temperature"] = f"{manifest.temperature:.4g}, of the plain network {manifest.map_temperature:.4g}"
    else:
        rows["noise"] = f"standard deviation {noise_text(manifest, '.4g')}{_by_input(manifest)}"
    rows["threshold"] = (
        f"reject above {calibration.score} {calibration.threshold:.4g} (false-reject rate "
        f"{calibration.false_reject_rate:g}, {calibration.scores} held-out examples)"
    )
    if calibration.parts is not None:
        rows["surprise"] = f"the largest of {', '.join(map(_beyond, calibration.parts))}"
    rows |= _rejection_rows(manifest.rejection)
    if manifest.verification is not None:
        rows["verified"] = f"relative error of variance {manifest.verification.variance_error:.1e} against float64"
    rows |= _metric_rows(manifest.metrics, manifest.task)
    if not warned:
        rows |= {f"warning {i}": text for i, text in enumerate(manifest.warnings, 1)}
    _print_rows(rows)


def _counted(outputs: int) -> str:
    return f"{outputs} output{'s' if outputs > 1 else ''}"


def _inputs(spec: InputSpec, kinds: str) -> str:
    """One, or several by their names."""
    if spec.parts is None:
        return f"{spec.dtype} {spec.shape}{kinds}"
    return ", ".join(f"{part.name} {part.dtype} {part.shape}" for part in spec.parts)


def noise_text(manifest: Manifest, digits: str) -> str:
    """One number, or one for each output of a regression that has several."""
    sigma = manifest.sigma_noise
    if not isinstance(sigma, tuple):
        return f"{sigma:{digits}}"
    return ", ".join(f"{name} {one:{digits}}" for name, one in zip(manifest.labels, sigma, strict=True))


def _by_input(manifest: Manifest) -> str:
    found = manifest.input_noise
    return "" if found is None else f", times {found.least:.2g} to {found.most:.2g} by the input"


def _added_rows(added: AddedWeights | None) -> dict[str, str]:
    """The second posterior, and why it has this share of the uncertainty."""
    if added is None:
        return {}
    layers = ", ".join(layer or "the inputs" for layer in added.layers)
    return {"added weights": f"{added.features} features of {layers}", "budget": added.explanation}


def _metric_rows(metrics: Mapping[str, float], task: Task) -> dict[str, str]:
    """What uncertainty buys and costs on held-out data, step by step; then what else was measured."""
    rows, shown = {}, set[str]()
    for name, title in (("calibration_log_likelihood", "log-likelihood"), ("calibration_error", "calibration error")):
        found = {text: f"{name}{step}" for step, text in STEPS[task].items() if f"{name}{step}" in metrics}
        shown |= set(found.values())
        if found:
            rows[title] = ", ".join(f"{text} {metrics[step]:.3f}" for text, step in found.items())
    return rows | {name.replace("_", " "): _number(value) for name, value in metrics.items() if name not in shown}


def _number(value: float) -> str:
    """A count in full."""
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1 else f"{value:.4g}"


def _beyond(part: ScorePart) -> str:
    """A part of a largest surprise, and from where on it counts."""
    return f"{part.name} beyond its {100 * part.least_level:.4g} % quantile" if part.least else part.name


def _rejection_rows(rejection: tuple[RejectedShare, ...] | None) -> dict[str, str]:
    """What share of each kind of obviously foreign inputs is rejected."""
    if rejection is None:
        return {}
    each = ", ".join(f"{found.name.replace('-', ' ')} {100 * found.share:.0f} %" for found in rejection)
    return {"foreign": f"rejected of obviously foreign inputs: {each}"}


def print_standalone(written: "StandaloneFile") -> None:
    """What was exported, and three lines of Python that run it."""
    _print_rows(
        {"wrote": f"{written.path} ({written.bytes} bytes)"}
        | {f"input {name}": text for name, text in written.inputs.items()}
        | {f"output {name}": text for name, text in written.outputs.items()}
    )
    wanted = ["mean", "std", "rejected"] if "std" in written.outputs else ["probabilities", "rejected"]
    print_lines(
        [
            "",
            "Run it:",
            "  import onnxruntime",
            f"  session = onnxruntime.InferenceSession({str(written.path)!r})",
            f'  session.run({json.dumps(wanted)}, {{"inputs": inputs}})',
        ]
    )


def print_lines(lines: Iterable[str]) -> None:
    """Plain lines."""
    screen = console()
    for line in lines:
        screen.print(line, highlight=False, markup=False)


def _print_rows(rows: dict[str, str]) -> None:
    """One value a line, never read as markup; outside a terminal never wrapped, so that it can be searched and cut."""
    width = max(len(name) for name in rows)
    screen, table = console(), Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")  # a digest is no word, and is wanted whole
    for name, value in rows.items():
        colour = WARNING_COLOUR if name.startswith("warning ") else ""
        title, text = Text(f"{name:<{width}}", f"bold {colour}".strip()), Text(value, colour)
        if screen.is_terminal:
            table.add_row(title, text)
        else:
            screen.print(Text.assemble(title, "  ", text))
    if table.row_count:
        screen.print(table)
