"""Batches of an engine for bulk work, such as Ray Data, Spark or Dask -> the columns that `demur score` writes."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from demur.service.bundle import Manifest, read_bundle
from demur.service.inference.frames import is_frame, numbers_of, places_by_name, plain_name
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.inference.texts import texts_of
from demur.service.remote.cache import pretrained

from ..transfer import trusted_by_environment
from .inputs import Array, Batch
from .out_of_range import OutOfRange
from .rows import Row, columns, flat, kept_name, scored

NUMBER = "row"  # of an input, which no part of a large data set knows


class BatchScorer:
    """Scores batches: called with columns, it returns the columns that `demur score` writes, but for `row`.

    >>> scorer = BatchScorer("hf://acme/digits", keep=["patient_id"])
    >>> scorer({"inputs": images, "patient_id": names})["rejected"]

    The bundle is opened at the first call, and a pickle holds its name alone: each process of a cluster opens it from
    the same folder, or fetches it from the same URI.
    """

    def __init__(
        self,
        bundle: Path | str,
        *,
        inputs: str = "inputs",
        keep: Sequence[str] = (),
        batch_size: int = 256,
        threads: int = 1,
        policy: Policy | None = None,
    ) -> None:
        """bundle: a folder, a URI, or OWNER/NAME on the Hugging Face Hub. inputs: the column of the examples, or of the
        texts; a bundle with feature names, or with several inputs, finds these as columns where there is none of that
        name. keep: the columns to return as they are. batch_size: how many examples are predicted at once. threads: of
        the processor; engines start a process for each. policy: as for `Predictor.load`. Raises `ValueError` for a
        batch size below one.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size: found {batch_size}, expected at least 1")
        self.bundle, self.inputs, self.keep = str(bundle), inputs, tuple(keep)
        self.batch_size, self.threads, self.policy = batch_size, threads, policy

    @cached_property
    def predictor(self) -> Predictor:
        """Opened when it is first asked for. It must be signed where `DEMUR_TRUSTED_KEYS` says by whom; raises
        `BundleError`."""
        verify = trusted_by_environment()
        bundle = read_bundle(pretrained(self.bundle, verify=verify), verify)
        return Predictor(bundle, threads=self.threads, policy=self.policy)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "predictor"}

    def __call__(self, batch: Any) -> dict[str, Array]:
        """batch: a mapping of columns, a data frame, or an Arrow table -> the columns, each (n,), n >= 0: engines have
        empty parts too. White space around names and their form in Unicode do not count.

        Raises `ValueError` for columns that are missing or wrong, and `NonFinitePrediction` where the network's output
        is not finite.
        """
        manifest = self.predictor.manifest
        keys = list(batch.columns if is_frame(batch) else getattr(batch, "column_names", batch))
        examples = self._examples(batch, keys, manifest)
        kept = {kept_name(name, manifest): cells for name, cells in _chosen(batch, keys, self.keep, "keep").items()}
        if len(kept) < len(self.keep):
            raise ValueError(f"keep: found {_listed(self.keep)}, of which two would have one name, expected different")
        return kept | predicted_columns(self.predictor, examples, self.batch_size)

    def _examples(self, batch: Any, keys: list[Any], manifest: Manifest) -> Any:
        """What the predictor takes: one column, or several by their names."""
        parts, known = manifest.input.parts, {plain_name(str(key)) for key in keys}
        wanted = manifest.input.feature_names or () if parts is None else [part.name for part in parts]
        has_all, plain = bool(wanted) and known.issuperset(map(plain_name, wanted)), plain_name(self.inputs)
        # One of several inputs, or of the features, may have the name of the column of the examples.
        if plain in known and not (has_all and plain in map(plain_name, wanted)):
            (column,) = _chosen(batch, keys, [self.inputs], "inputs").values()
            return column if texts_of(column) is not None else _stacked(column, manifest.input.shape, self.inputs)
        if has_all:
            columns = _chosen(batch, keys, wanted, "inputs")
            if len({len(column) for column in columns.values()}) > 1:
                lengths = {name: len(column) for name, column in columns.items()}
                raise ValueError(f"found columns of {lengths!s:.200} rows, expected as many in each")
            if parts is not None:
                return {part.name: _stacked(columns[part.name], part.shape, part.name) for part in parts}
            return np.stack([_stacked(columns[name], (), name) for name in wanted], axis=1)
        expected = f", or {_listed(wanted)}" if wanted else ""
        raise ValueError(f"found the columns {_listed(keys)}, expected {self.inputs!r}{expected}")


def column_kinds(manifest: Manifest) -> dict[str, type]:
    """The columns of `predicted_columns` and what they hold, in order."""
    return {name: kind for name, kind in columns(manifest, with_files=False).items() if name != NUMBER}


def predicted_columns(predictor: Predictor, inputs: Any, batch_size: int = 256) -> dict[str, Array]:
    """What `Predictor.predict` takes, or nothing of it -> the columns of `demur score` but for `row`, each (n,).

    Raises `ValueError` for inputs of another form, and `NonFinitePrediction`.
    """
    flattened = [flat(row, predictor.manifest.labels) for row in _rows(predictor, inputs, batch_size)]
    kinds = column_kinds(predictor.manifest)
    return {name: _column([row[name] for row in flattened], kind) for name, kind in kinds.items()}


def _rows(predictor: Predictor, inputs: Any, batch_size: int) -> list[Row]:
    if not len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs):
        return []
    examples, strange = predictor.inputs_of(inputs), OutOfRange(predictor.range_check)
    return [
        row
        for first in range(0, len(examples), batch_size)
        for row in scored(predictor, Batch(examples[first : first + batch_size]), first, strange)
    ]


def _chosen(batch: Any, keys: Sequence[Any], wanted: Sequence[str], where: str) -> dict[str, Array]:
    """The columns by the names that are wanted; `ValueError` for one that is missing, or there several times."""
    places = places_by_name(list(map(str, keys)), wanted, where, f"columns of the batch: {_listed(keys)}")
    return {name: _array(batch[keys[place]]) for name, place in zip(wanted, places, strict=True)}


def _array(values: Any) -> Array:
    """An array; of lists of different lengths one of objects. Masked entries stay masked, to be refused."""
    if isinstance(values, np.ma.MaskedArray):
        return values
    if getattr(values, "null_count", 0):  # of Arrow, whose whole numbers would become floats
        return _column(values.to_pylist(), object)
    try:
        return np.asarray(values)
    except ValueError:
        return _column(list(values), object)


def _stacked(column: Array, shape: tuple[int, ...], name: str) -> Array:
    """The numbers in a column, in which examples may stand one by one, as data frames have them: (n, *shape).

    Raises `ValueError` that names the first row of another shape, or without numbers.
    """
    where = f"column {name!r:.80}"
    examples = list(map(_dense, column)) if column.dtype == object and shape else []
    for row, example in enumerate(examples):
        if example.shape != shape:
            found = f"shape {example.shape}" if example.ndim else f"{example.item()!r:.60}"
            if isinstance(next(example.flat, None), list | tuple | np.ndarray):
                found += ", then lists of different lengths"
            raise ValueError(f"{where}, row {row}: found {found}, expected shape {shape}")
    kinds = {example.dtype.kind for example in examples}  # stacked with texts, numbers would become texts
    return numbers_of(np.stack(examples, dtype=None if kinds <= set("fiub") else object) if examples else column, where)


def _dense(cell: Any) -> Array:
    """Lists and arrays in each other as one array, as deep as they have the same lengths."""
    array = _array(cell)
    parts = list(map(_dense, array)) if array.dtype == object and array.ndim else []
    return np.stack(parts) if len({part.shape for part in parts}) == 1 else array


def _column(values: list[Any], kind: type) -> Array:
    """Lists, and what may be missing, as objects."""
    if kind in (float, bool, str) and None not in values:
        return np.array(values, kind)
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _listed(names: Sequence[Any]) -> str:
    return f"{', '.join(map(repr, names)):.300}"
