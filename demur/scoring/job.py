"""Score a file: read a batch, predict, append its rows, and publish them when all inputs are done."""

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from demur.service.bundle import InputSpec
from demur.service.format.files import misplaced_file
from demur.service.inference.graph import NetworkError
from demur.service.inference.predictor import NonFinitePrediction, Predictor

from .errors import ScoringError
from .inputs import Array, Batch, Source, open_array, open_images, part_of, refused_by_network
from .lines import NAME, open_json_lines
from .out_of_range import OutOfRange
from .output import check_format, publish, strangest
from .progress_file import REMEDY, Job, ProgressFile
from .rows import Row, columns, kept_name, scored
from .tables import open_csv, open_parquet
from .texts import TextColumn, open_lines

SAVE_SECONDS = 2.0
ARRAY, CSV, PARQUET, JSON_LINES, LINES = ".npy", ".csv", ".parquet", ".jsonl", ".txt"
TABLES = (CSV, PARQUET, JSON_LINES)
Report = Callable[[int, int], None]
Warn = Callable[[str], None]
RowsOf = Callable[[Batch, int], list[Row]]


def open_source(
    path: Path,
    spec: InputSpec,
    csv_header: bool | None = None,
    keep: Sequence[str] = (),
    texts: TextColumn | None = None,
    model: str = "",
) -> Source:
    """Inputs by the file's suffix, or of a folder of images; raises `ScoringError`.

    csv_header: whether the first line of a .csv file is a header; None: see `open_csv`. keep: the columns of a table to
    write beside the predictions. texts: what reads texts, where the bundle takes them; arrays hold their tokens. model:
    whose lines of an audit trail count, where it has those of several.
    """
    kind = JSON_LINES if NAME.fullmatch(path.name) else path.suffix
    if csv_header is not None and kind != CSV:
        option = "--header" if csv_header else "--no-header"
        raise ScoringError(f"{option}: found {path}, expected a {CSV} file; leave the option out")
    if keep and (path.is_dir() or kind not in TABLES):
        raise ScoringError(f"--keep: found {path}, expected a table: {', '.join(TABLES)}")
    if path.is_dir():
        return open_images(path, spec)
    if not path.exists():
        raise ScoringError(f"{path}: no such file or folder")
    openers: dict[str, Callable[[], Source]] = {
        ARRAY: lambda: open_array(path, spec),
        CSV: lambda: open_csv(path, spec, csv_header, keep, texts),
        PARQUET: lambda: open_parquet(path, spec, keep, texts),
        JSON_LINES: lambda: open_json_lines(path, spec, model, keep),
    }
    if texts is not None:
        openers[LINES] = partial(open_lines, path, texts)
    if kind not in openers:
        expected = f"{', '.join(openers)}, or a folder of images"
        raise ScoringError(f"{path}: found the suffix {kind!r}, expected {expected}")
    return openers[kind]()


def score_file(
    predictor: Predictor,
    path: Path,
    out: Path,
    *,
    batch_size: int,
    csv_header: bool | None = None,
    keep: Sequence[str] = (),
    part: tuple[int, int] | None = None,
    force: bool = False,
    top: int = 0,
    tell: Callable[[list[Row]], None] = lambda rows: None,  # noqa: ARG005
    report: Report = lambda done, count: None,  # noqa: ARG005
    warn: Warn = lambda warning: None,  # noqa: ARG005
) -> int:
    """Score every input of `path` into `out`, and return how many there are.

    A run that ended early goes on where it was. csv_header, keep: as for `open_source`. part: (i, n) scores only the
    i-th of n parts of about the same size, so that n runs, each with its `out`, share the work. force: replace `out`,
    and discard what another job left. tell: called at the end with the `top` strangest rows. report: called with the
    number of inputs done and of all. warn: called at the end where inputs were far outside the range of the fit. Raises
    `ScoringError`, and `InputError` for a bad image; what is done then stays, and the same command goes on from there.
    """
    check_format(out)
    if (problem := misplaced_file(out, [path])) is not None:
        raise ScoringError(f"--out {out}: {problem}")
    if out.exists() and not force:
        raise ScoringError(f"--out {out}: exists; give another name, or --force to replace it")
    texts = None if predictor.reader is None else TextColumn(predictor.reader, predictor.manifest.input)
    source = open_source(path, predictor.manifest.input, csv_header, keep, texts, predictor.manifest.name)
    source = part_of(source, *(part or (1, 1)))  # a file that grows meanwhile, such as a log, ends where it ended
    progress = ProgressFile(out, _job(predictor, path, source)).open(force)
    strange = OutOfRange(predictor.range_check)
    rows_of = partial(scored, predictor, strange=strange)
    try:
        _score(rows_of, path, predictor.manifest.input, source, progress, batch_size, report)
        manifest = predictor.manifest
        tell(strangest(progress.part, top))
        publish(progress.part, out, columns(manifest, path.is_dir(), source.kept), manifest.labels)
        progress.remove_state()
    finally:
        progress.close()
        if source.note:
            warn(f"{path}: {source.note}")
        if strange.count:
            warn(f"{path}: {strange.text}")
        if texts is not None and texts.cut:
            warn(f"{path}: {texts.text}")
    return source.count


def _job(predictor: Predictor, path: Path, source: Source) -> Job:
    decision = predictor.decision
    asked = decision.policy.model_dump() | {"false_reject_rate": decision.rule.false_reject_rate}
    kept = list(source.kept)
    if len({kept_name(name, predictor.manifest) for name in kept}) < len(kept):
        raise ScoringError(f"--keep: found {', '.join(kept)!s:.200}, of which two would have one name, expected others")
    return Job(predictor.digest, str(path.resolve()), source.count, asked, kept, source.first)


def _check_same_input(path: Path, source: Source, progress: ProgressFile, size: int) -> None:
    """Refuse a file with another input at the place of the last one scored. Those after it may have been mended."""
    if progress.rows:
        batch = next(source.batches(progress.rows - 1, size))  # what is before is passed in steps of this size
        if _digest(batch.inputs[0]) != progress.last:
            place = f"row {source.first + progress.rows - 1}"
            raise ScoringError(f"{path}: {place}: found another input than the one that was scored; {REMEDY}")


def _digest(example: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(example).tobytes()).hexdigest()


def _score(
    rows_of: RowsOf, path: Path, spec: InputSpec, source: Source, progress: ProgressFile, size: int, report: Report
) -> None:
    saved = time.monotonic()
    _check_same_input(path, source, progress, size)
    report(progress.rows, source.count)
    try:
        for batch in source.batches(progress.rows, size):
            try:
                rows = rows_of(batch, source.first + progress.rows)
            except NonFinitePrediction as error:
                found = f"row {error.index}: found an output of the network that is not finite"
                raise ScoringError(f"{path}: {found}; the input may be out of range") from None
            except NetworkError as error:
                raise refused_by_network(error, batch, spec, path, source.first + progress.rows) from None
            progress.append(rows, _digest(batch.inputs[-1]))
            if time.monotonic() - saved > SAVE_SECONDS:
                progress.save()
                saved = time.monotonic()
            report(progress.rows, source.count)
    finally:
        progress.save()
    if progress.rows != source.count:
        raise ScoringError(f"{path}: found {progress.rows} inputs, expected {source.count}: it changed meanwhile")
