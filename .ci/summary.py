"""Print the tests that failed and the slowest ones: `summary.py FOLDER`, of pytest's reports (--junitxml) in it."""

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

SLOWEST = 25


def cases(folder: Path) -> Iterator[tuple[float, str, str]]:
    """Seconds with fixtures, name, and the first line of what went wrong ("" where nothing did)."""
    for report in sorted(folder.glob("*.xml")):
        for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 (the tests of this run wrote it)
            problems = [case.find(kind) for kind in ("failure", "error")]
            messages = [found.get("message", "").partition("\n")[0] for found in problems if found is not None]
            name = f"{report.stem}: {case.get('classname')}::{case.get('name')}"
            yield float(case.get("time", 0)), name, messages[0] or "failed" if messages else ""


def main(folder: Path) -> None:
    """Print the summary of the reports in `folder`."""
    found = list(cases(folder))
    broken = [f"  {name}  {message[:200]}" for _, name, message in found if message]
    print(f"{len(found)} tests, {len(broken)} failed")
    print("\n".join(broken))
    print(f"the {SLOWEST} slowest, in seconds:")
    for seconds, name, _ in sorted(found, reverse=True)[:SLOWEST]:
        print(f"  {seconds:6.1f}  {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
