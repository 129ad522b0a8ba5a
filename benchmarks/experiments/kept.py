"""What an interrupted experiment left in `benchmarks/cache`: trained networks and the outcome of each seed."""

import json
import os
from collections.abc import Callable, Iterable
from time import perf_counter

from safetensors.torch import load_file, save_file
from torch import nn

from benchmarks.core.environment import git_commit
from benchmarks.core.folders import CACHE
from benchmarks.core.settings import Values, write_json


def trained_once(name: str, model: nn.Module, train: Callable[[], object]) -> nn.Module:
    """The model in eval mode, with the weights kept under `name`; `train` makes them where there are none."""
    file = CACHE / f"{name}.safetensors"
    if not file.exists():
        train()
        CACHE.mkdir(exist_ok=True)
        (CACHE / ".gitignore").write_text("*\n")
        partial = file.with_suffix(f".{os.getpid()}.partial")  # two runs may share the cache
        save_file(model.state_dict(), partial)
        partial.replace(file)
    model.load_state_dict(load_file(file))
    return model.eval()


def with_earlier(runs: list[Values], earlier: list[Values], order: Iterable[str]) -> list[Values]:
    """The runs, and of earlier ones the seeds and methods that were not measured again; methods in order."""
    found = {_key(run): run for run in earlier}
    labels = list(order)
    for run in runs:
        methods = found.get(_key(run), run)["methods"] | run["methods"]
        found[_key(run)] = run | {"methods": {label: methods[label] for label in labels if label in methods}}
    return [found[key] for key in sorted(found)]


def _key(run: Values) -> tuple[str, int]:
    return run.get("network", ""), run["seed"]


def run_once(name: str, scale: Values, run: Callable[[], Values]) -> Values:
    """The outcome kept under `name` for the same scale, or that of `run`, with its seconds and the commit."""
    scale = json.loads(json.dumps(scale))  # as the file has it
    file = CACHE / f"{name}-outcome.json"
    if file.exists():
        kept: Values = json.loads(file.read_text())
        if kept["scale"] == scale:
            print(f"{name}: kept from commit {kept.get('commit', 'unknown'):.7}; delete {file} to measure it again")
            return kept
    start = perf_counter()
    outcome = run() | {"scale": scale, "seconds": perf_counter() - start, "commit": git_commit()}
    print(f"{name}: {outcome['seconds']:.0f} s", flush=True)
    write_json(file, outcome)
    return outcome
