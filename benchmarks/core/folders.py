"""Where benchmarks read and write."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
CACHE = ROOT / "benchmarks" / "cache"  # not under version control
