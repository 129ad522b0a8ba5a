"""README.md of a bundle: what a model hub shows of it. For people; nothing reads it again.

The block at its top is the metadata of model cards on the Hugging Face Hub.
"""

import re
from collections.abc import Iterable

from .manifest import Manifest, Task
from .steps import STEPS
from .text import printable

SHOWN_CLASSES = 10
WORDS: dict[Task, tuple[str, str, str]] = {
    "classification": ("classifier of", "class", "classes"),
    "multilabel": ("model of", "label", "labels"),
    "regression": ("regression of", "value", "values"),
}
FIGURES = {"calibration_log_likelihood": "log-likelihood", "calibration_error": "calibration error"}
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!$])")


def model_card(manifest: Manifest) -> str:
    """The page of this bundle, in Markdown."""
    parts = [_metadata(manifest), _what_it_is(manifest), _use(manifest), _figures(manifest), _rejection(manifest)]
    if manifest.warnings:
        parts.append("## Warnings of the fit\n\n" + "\n".join(f"- {_plain(text)}" for text in manifest.warnings))
    return "\n\n".join(filter(None, parts)) + "\n"


def _metadata(manifest: Manifest) -> str:
    tags = ["uncertainty", "laplace-approximation", "out-of-distribution", "onnx", manifest.task]
    pipeline = _pipeline(manifest)
    lines = ["---", "library_name: demur", *(() if pipeline is None else (f"pipeline_tag: {pipeline}",)), "tags:"]
    return "\n".join([*lines, *(f"- {tag}" for tag in tags), "---"])


def _pipeline(manifest: Manifest) -> str | None:
    """The task in the words of the Hub, where it has one for it."""
    if manifest.task == "regression":
        return "tabular-regression" if manifest.input.feature_names else None
    if manifest.input.image is not None:
        return "image-classification"
    if manifest.input.text is not None:
        return "text-classification"
    return "tabular-classification" if manifest.input.feature_names else None


def _what_it_is(manifest: Manifest) -> str:
    kind, one, several = WORDS[manifest.task]
    counted = f"{manifest.outputs} {several if manifest.outputs > 1 else one}"
    return (
        f"# {_plain(manifest.name)}, version {_plain(manifest.version)}\n\n"
        f"A {kind} {counted}{_names(manifest)} that says how sure it is, and rejects inputs unlike those that it was "
        "trained on. It is a bundle of Demur: a network in ONNX with a Laplace posterior over "
        f"{manifest.subnetwork_size:,} of its {manifest.parameter_count:,} weights (Daxberger et al., 2021)."
    )


def _names(manifest: Manifest) -> str:
    names = manifest.class_names
    if not names:
        return ""
    more = ", ..." if len(names) > SHOWN_CLASSES else ""
    return f" ({', '.join(map(_plain, names[:SHOWN_CLASSES]))}{more})"


def _use(manifest: Manifest) -> str:
    spec, shape = manifest.input, " x ".join(map(str, manifest.input.shape))
    taken = f"n x {shape}, {spec.dtype}"
    if spec.text is not None:
        taken = "a list of texts"
    elif spec.parts is not None:
        taken = f"an array of each by its name: {', '.join(part.name for part in spec.parts)!s:.100}"
    return (
        "## Use\n\n"
        "```sh\n"
        "demur serve hf://OWNER/NAME    # this repository, or a folder that holds its files\n"
        "```\n\n"
        "```python\n"
        "from demur import Predictor\n\n"
        'predictor = Predictor.from_pretrained("OWNER/NAME")\n'
        f"prediction = predictor.predict(inputs)    # {taken}\n"
        f"prediction.{'mean' if manifest.task == 'regression' else 'probabilities'}, prediction.rejected\n"
        "```"
    )


def _figures(manifest: Manifest) -> str:
    """What uncertainty buys on held-out data, step by step."""
    steps, metrics = STEPS[manifest.task], manifest.metrics
    rows = []
    for name, title in FIGURES.items():
        found = [metrics.get(f"{name}{step}") for step in steps]
        if any(value is not None for value in found):
            rows.append((title, *("" if value is None else f"{value:.3f}" for value in found)))
    if (accuracy := metrics.get("calibration_accuracy")) is not None:
        rows.append(("accuracy", *(f"{accuracy:.3f}" if step == "" else "" for step in steps)))
    if not rows:
        return ""
    examples = f"On {manifest.calibration.examples:,} held-out examples:"
    noise = "" if manifest.input_noise is None else "\n\nThe noise, and with it the intervals, depend on the input."
    return f"## Figures\n\n{examples}\n\n{_table(('', *steps.values()), rows)}{noise}"


def _rejection(manifest: Manifest) -> str:
    rate, expected = f"{100 * manifest.calibration.false_reject_rate:g} %", manifest.calibration.expected
    said = f"Of ordinary inputs, at most {rate} are rejected ({expected}); a service can choose another rate."
    if manifest.rejection:
        rows = [(found.name.replace("-", " "), f"{100 * found.share:.0f} %") for found in manifest.rejection]
        said += f" Of foreign ones:\n\n{_table(('inputs', 'rejected'), rows)}"
    return f"## What it rejects\n\n{said}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """On one line, and without a meaning to Markdown or HTML."""
    return SPECIAL.sub(r"\\\1", printable(text)).replace("&", "&amp;")
