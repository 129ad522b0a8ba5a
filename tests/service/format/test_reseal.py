"""The manifest of a bundle written anew: with a report, and always in this release's format."""

import dataclasses
from pathlib import Path

from demur.service.bundle import CALIBRATION, MODEL, POSTERIOR, REPORT, read_bundle, reseal_manifest
from demur.service.format.manifest import FORMAT_VERSION
from tests.support.bundles import Synthetic, rewrite
from tests.support.tamper import contents


def test_a_report_is_written_with_the_bundle_or_after_it(classification: Synthetic, tmp_path: Path) -> None:
    page = "<p>Grüße</p>".encode()
    at_once = rewrite(classification.path, tmp_path / "at once", report=page)
    later = rewrite(classification.path, tmp_path / "later")
    reseal_manifest(later, read_bundle(later).manifest, page)
    assert contents(at_once) == contents(later)
    assert (at_once / REPORT).read_bytes() == page
    assert set(read_bundle(at_once).manifest.files) == {MODEL, POSTERIOR, CALIBRATION, REPORT}
    reseal_manifest(later, read_bundle(later).manifest)
    assert contents(later) == contents(at_once)
    assert REPORT not in contents(rewrite(at_once, tmp_path / "without"))


def test_this_format_is_written_whatever_the_manifest_was_read_from(folder: Path) -> None:
    bundle = read_bundle(folder)
    assert bundle.manifest.format_version == FORMAT_VERSION
    before = contents(folder)
    other = dataclasses.replace(bundle.manifest, format_version="1.9")
    assert reseal_manifest(folder, other) == bundle.manifest
    assert contents(folder) == before
