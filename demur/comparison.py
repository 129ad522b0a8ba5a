"""`demur compare`: how the predictions of two bundles differ on the same inputs."""

from pathlib import Path

from rich.table import Table

from demur.service.inference.predictor import Predictor
from demur.service.maths.disagreement import Differences, mean_interval, share_interval

from .card import console
from .scoring.inputs import Source
from .scoring.job import Report, open_source
from .scoring.texts import TextColumn

NAMES = {
    "changed": "answered otherwise",
    "newly_rejected": "accepted before, rejected now",
    "newly_accepted": "rejected before, accepted now",
}


def compare_on(
    first: Predictor,
    second: Predictor,
    path: Path,
    batch_size: int,
    report: Report,
    csv_header: bool | None = None,
) -> Differences:
    """The differences on every input of the file, each bundle reading it by its own input spec. csv_header: as for
    `open_source`.

    Raises `ScoringError` and `InputError` for inputs that one of them does not take, and `ValueError` for bundles of
    different tasks or classes.
    """
    one, other = first.manifest, second.manifest
    if (one.task, one.labels) != (other.task, other.labels):
        found = f"{one.task} of {', '.join(one.labels)!s:.100} and {other.task} of {', '.join(other.labels)!s:.100}"
        raise ValueError(f"found {found}, expected bundles of one task, with the same classes, labels or values")
    sources = [_source(predictor, path, csv_header, one.name) for predictor in (first, second)]
    counts = [source.count for source in sources]
    if counts[0] != counts[1]:
        raise ValueError(
            f"{path}: found {counts[0]} inputs of one bundle and {counts[1]} of the other, expected as many"
        )
    parts, done, count = [], 0, counts[0]
    report(done, count)
    for batches in zip(*(source.batches(0, batch_size) for source in sources), strict=True):
        answers = [
            predictor.predict(batch.inputs).compared for predictor, batch in zip((first, second), batches, strict=True)
        ]
        parts.append(Differences.of(answers[0], answers[1], one.task == "multilabel"))
        done += len(parts[-1])
        report(done, count)
    return Differences.concatenate(parts)


def _source(predictor: Predictor, path: Path, csv_header: bool | None, model: str) -> Source:
    spec = predictor.manifest.input
    texts = None if predictor.reader is None else TextColumn(predictor.reader, spec)
    return open_source(path, spec, csv_header, texts=texts, model=model)


def print_differences(found: Differences) -> None:
    """One figure a line, with its interval."""
    table = Table(box=None, pad_edge=False, caption=f"{len(found):,} inputs; 95 % intervals in brackets")
    table.caption_justify = "left"
    table.add_column("")
    table.add_column("second bundle", no_wrap=True)
    for name, text in NAMES.items():
        count = int(getattr(found, name).sum())
        low, high = share_interval(count, len(found))
        table.add_row(text, f"{count / len(found):.2%}  ({low:.2%} to {high:.2%})")
    distance = found.p_value_distance
    low, high = mean_interval(distance)
    table.add_row("mean distance of p-values", f"{distance.mean():.4f}  ({max(0.0, low):.4f} to {min(1.0, high):.4f})")
    console().print(table)
