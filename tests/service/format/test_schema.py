"""service/bundle.schema.json: made from the code, and true of the bundles that there are."""

import subprocess
import sys
from pathlib import Path

import pytest

from demur.service.format.schema import SCHEMA_FILE, schema_text
from tests.support.added import write_added
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.tamper import load_json, replaced, save_json

GOLDEN = Path(__file__).parents[2] / "golden"


def check(manifest: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(SCHEMA_FILE), str(manifest)]
    return subprocess.run(command, text=True, capture_output=True)


def test_it_is_up_to_date() -> None:
    remedy = "run `python -m demur.service.format.schema`"
    assert SCHEMA_FILE.read_text() == schema_text(), remedy


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("v*")))
def test_it_takes_the_golden_bundles(name: str) -> None:
    done = check(GOLDEN / name / "bundle" / "manifest.json")
    assert done.returncode == 0, done.stdout


def test_it_takes_added_weights(tmp_path: Path) -> None:
    done = check(write_added(tmp_path).path / "manifest.json")
    assert done.returncode == 0, done.stdout


def test_it_refuses_wrong_types_ranges_and_names(tmp_path: Path) -> None:
    bundle: Synthetic = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC)
    data = load_json(bundle.path)
    assert check(bundle.path / "manifest.json").returncode == 0
    for place, value in ((("outputs",), "3"), (("prior", "used"), 0.0), (("input", "added"), 1), (("task",), "rank")):
        save_json(tmp_path / "bundle", replaced(data, place, value))
        done = check(bundle.path / "manifest.json")
        assert done.returncode == 1, (place, done.stdout)
        assert "$." + place[0] in done.stdout or place[-1] in done.stdout, done.stdout
