"""Arguments of the scripts, and what their results were measured with."""

import argparse
import sys
from typing import Any

import torch

from benchmarks.environment import environment


def arguments(description: str | None, seeds: int) -> argparse.Namespace:
    """`--quick`: one seed at miniature scale, written into the cache; `--seeds N`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="miniature scale, one seed, results into the cache")
    parser.add_argument("--seeds", type=int, default=seeds, help=f"how many networks of a kind (default {seeds})")
    return parser.parse_args()


def measured_with(script: str) -> dict[str, Any]:
    """The environment, with the script's own command."""
    return environment(torch.get_num_threads()) | {"command": ["python", "-m", f"benchmarks.{script}", *sys.argv[1:]]}
