"""Progress of a long job on disk, to resume after a crash; checked before it is used.

A checkpoint is a folder with one safetensors file for each stage and process, `<stage>-<rank>.safetensors`: one tensor,
and in its metadata a JSON text (fingerprint of the job, state of the stage) and the sha256 of both. A file is written
beside, flushed to disk and renamed: it is whole or it is not there. Nothing is ever unpickled.
"""

import hashlib
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .blocks import spans

FORMAT = 1
ROWS_AT_ONCE = 1024
KNOWN_FILE = re.compile(r"[a-z]+-\d+\.(safetensors|tmp)")


def checkpoint_folder(destination: Path) -> Path:
    """Where a fit that writes its bundle to `destination` keeps its progress."""
    return destination.absolute().parent / f".{destination.name}.checkpoint"


def discard_checkpoint(destination: Path, rank: int = 0) -> None:
    """Remove what an interrupted fit of this destination has kept for this process, so that it starts again."""
    folder = checkpoint_folder(destination)
    for path in sorted(folder.glob(f"*-{rank}.*")) if folder.is_dir() else ():
        if KNOWN_FILE.fullmatch(path.name):
            path.unlink(missing_ok=True)


def kept_by_checkpoint(destination: Path) -> Path | None:
    """The folder of what an interrupted fit has kept; None where there is nothing."""
    folder = checkpoint_folder(destination)
    return folder if folder.is_dir() and any(map(KNOWN_FILE.fullmatch, os.listdir(folder))) else None  # noqa: PTH208


EVERY_SECONDS = 300.0


class CheckpointError(ValueError):
    """A checkpoint cannot be used: it is damaged, another job's, or its data come in another order now."""


class Checkpoint:
    """The checkpoint of one job in `folder`; its work counts only where `fingerprint` is equal.

    every_seconds, clock: how often a pass over the data is saved (`due`). rank: of this process.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: Mapping[str, str],
        *,
        every_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        rank: int = 0,
    ) -> None:
        self.folder, self.fingerprint = folder, dict(fingerprint)
        self._every = EVERY_SECONDS if every_seconds is None else every_seconds
        self._clock, self._rank = clock, rank
        self._saved_at = clock()

    def check(self) -> list[str]:
        """The stages that this process has saved. `CheckpointError` for a folder that is not this job's."""
        names = sorted(os.listdir(self.folder)) if self.folder.is_dir() else []  # noqa: PTH208  names only
        foreign = [name for name in names if not KNOWN_FILE.fullmatch(name)]
        if foreign or (self.folder.exists() and not self.folder.is_dir()):
            found = foreign[0] if foreign else "a file"
            raise CheckpointError(f"{self.folder}: found {found}, expected a checkpoint folder; move it elsewhere")
        ending = f"-{self._rank}.safetensors"
        stages = [name.removesuffix(ending) for name in names if name.endswith(ending)]
        for stage in stages:
            self._opened(stage, lambda _, record: self._check_job(stage, record, {}))  # noqa: B023  called at once
        return stages

    def due(self) -> bool:
        """Whether `every_seconds` have passed since the last save, or since the start."""
        return self._clock() - self._saved_at >= self._every

    def save(self, stage: str, tensor: Tensor, state: Mapping[str, Any], identity: Mapping[str, str]) -> bool:
        """Replace the saved state of a stage: a contiguous tensor, JSON values, and what else must match on resuming.

        Where it cannot be written (a full disk), the job goes on: a `RuntimeWarning` says so, the last checkpoint
        stays as it was, and the next save is tried in its turn. Returns whether it was saved.
        """
        self._saved_at = self._clock()
        record = {"format": FORMAT, "fingerprint": self.fingerprint | dict(identity), "state": dict(state)}
        text = json.dumps(record, sort_keys=True)
        metadata = {"demur": text, "sha256": _digest(text, tensor)}
        part = self.folder / f"{stage}-{self._rank}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file({"tensor": tensor.detach()}, part, metadata)
            _flush(part)
            part.replace(self._path(stage))
            _flush(self.folder)
        except (OSError, SafetensorError) as error:
            part.unlink(missing_ok=True)
            message = f"checkpoint: could not be saved ({error}); the job goes on with the last one. Free some space in"
            warnings.warn(f"{message} {self.folder.parent}", RuntimeWarning, stacklevel=2)
            return False
        return True

    def load(
        self, stage: str, identity: Mapping[str, str], into: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Any]] | None:
        """(tensor, state) of a stage, or None where nothing was saved; `into` receives the tensor where given.

        Raises `CheckpointError` for a damaged file and for another job's.
        """
        if not self._path(stage).exists():
            return None

        def read(file: Any, record: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
            self._check_job(stage, record, identity)
            tensor = _read_tensor(file.get_slice("tensor"), into)
            if _digest(file.metadata()["demur"], tensor) != file.metadata()["sha256"]:
                raise ValueError("its sha256 does not match")
            return tensor, record["state"]

        loaded: tuple[Tensor, dict[str, Any]] = self._opened(stage, read)
        return loaded

    def remove(self) -> None:
        """Delete the checkpoint after success: its own files, and the folder if nothing else is in it."""
        if not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if KNOWN_FILE.fullmatch(path.name):
                path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, stage: str) -> Path:
        return self.folder / f"{stage}-{self._rank}.safetensors"

    def _opened(self, stage: str, read: Callable[[Any, dict[str, Any]], Any]) -> Any:
        path = self._path(stage)
        try:
            with safe_open(path, "pt") as file:
                record = json.loads(file.metadata()["demur"])
                if record["format"] != FORMAT:
                    raise ValueError(f"found format {record['format']}, expected {FORMAT}")
                return read(file, record)
        except CheckpointError:
            raise
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path}: the checkpoint is damaged ({error}); {self._remedy}, or give another destination"
            ) from error

    def _check_job(self, stage: str, record: dict[str, Any], identity: Mapping[str, str]) -> None:
        found, expected = record["fingerprint"], self.fingerprint | dict(identity)
        for name, value in expected.items():
            if found.get(name) != value:
                difference = _difference(name, str(found.get(name)), value)
                raise CheckpointError(
                    f"{self._path(stage)}: the checkpoint is another job's: {difference}; run that job to its end, or "
                    f"{self._remedy}"
                )

    @property
    def _remedy(self) -> str:
        return f"remove the folder {self.folder} to start again, as --restart does"


def _difference(name: str, found: str, expected: str) -> str:
    """What was found and expected; of JSON objects, only the entries that differ."""
    try:
        one, other = json.loads(found), json.loads(expected)
        keys = [key for key in other if one.get(key) != other[key]]
    except (ValueError, AttributeError, TypeError):
        return f"found {name} {found:.200}, expected {expected:.200}"
    pairs = [f"{key} {json.dumps(one.get(key))}, expected {json.dumps(other[key])}" for key in keys]
    return f"found in the {name} {'; '.join(pairs):.400}"


def _read_tensor(stored: Any, into: Tensor | None) -> Tensor:
    """The stored tensor, read a block of rows at a time so that `into` needs no second copy."""
    shape = list(stored.get_shape())
    if into is None:
        whole: Tensor = stored[:]
        return whole
    if shape != list(into.shape):
        raise ValueError(f"found a tensor of shape {shape}, expected {list(into.shape)}")
    for start, end in spans(len(into), ROWS_AT_ONCE):
        block: Tensor = stored[start:end]
        if block.dtype != into.dtype:
            raise ValueError(f"found {block.dtype}, expected {into.dtype}")
        into[start:end] = block
    return into


def _digest(text: str, tensor: Tensor) -> str:
    digest = hashlib.sha256(text.encode())
    update_digest(digest, tensor)
    return digest.hexdigest()


def update_digest(digest: Any, tensor: Tensor) -> None:
    """Add dtype, shape and bytes of a tensor of any device and dtype to a `hashlib` object."""
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    rows = tensor.detach() if tensor.dim() else tensor.detach().reshape(1)
    for start, end in spans(len(rows), ROWS_AT_ONCE):
        digest.update(rows[start:end].cpu().contiguous().flatten().view(torch.uint8).numpy())


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
