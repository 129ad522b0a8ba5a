"""Files that several benchmarks of one run use, written once."""

import json
from pathlib import Path

from benchmarks.core.harness import Values, call


class ArtefactCache:
    """Folders of files, each written by a function in a process of its own on first use."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        self.made: dict[str, Values] = {}

    def get(self, target: str, values: Values) -> Values:
        """The values with the "folder" that `target` ("module:name") wrote its files to, and its result ("made")."""
        key = json.dumps([target, values], sort_keys=True)
        if key not in self.made:
            folder = self.folder / str(len(self.made))
            folder.mkdir(parents=True)
            arguments = {**values, "folder": str(folder)}
            self.made[key] = {**arguments, "made": call(target, arguments, self.threads)}
        return self.made[key]
