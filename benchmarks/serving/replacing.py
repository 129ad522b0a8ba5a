"""A bundle folder whose content is replaced again and again."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

from demur.service.bundle import read_manifest, reseal_manifest, staged_bundle


class Replacing:
    """While the block runs, replace the bundle every so often by one of another version, as a deployment does."""

    def __init__(self, folder: Path, every_seconds: float) -> None:
        self.folder, self.every_seconds, self.count = folder, every_seconds, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._replace, daemon=True)

    def __enter__(self) -> "Replacing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _replace(self) -> None:
        while not self._stop.wait(self.every_seconds):
            manifest, _ = read_manifest(self.folder)
            with staged_bundle(self.folder) as staging:
                shutil.copytree(self.folder, staging, dirs_exist_ok=True)
                reseal_manifest(staging, replace(manifest, version=str(2 + self.count % 2)))
            self.count += 1
