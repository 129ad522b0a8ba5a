"""The cascade in the report and in the inspection: what the first stage decides, how often it agrees, its price."""

from dataclasses import replace
from pathlib import Path

import pytest

from offline.report.page import ReportData, report_html
from offline.report.text import cascade_rows
from probity.card import print_card
from service.bundle import read_manifest
from tests.support.cascades import write_cascade


def test_the_report_shows_it(tmp_path: Path) -> None:
    manifest = read_manifest(write_cascade(tmp_path / "bundle").path)[0]
    rows = {name: value.replace("\N{NO-BREAK SPACE}", " ") for name, value in cascade_rows(manifest).items()}
    assert rows["Decided by it"] == "75 % of 40 held-out examples"
    assert rows["Same verdict, where it decides"] == "100 % (95 % confident: at least 90 %)"
    assert rows["Under synthetic shifts"] == "decides 50 %, 99 % with the same verdict"
    assert rows["Price, in forward passes"] == "1.25 in a batch of 1"
    page = report_html(ReportData(manifest)).decode()
    assert '<section id="cascade">' in page
    for value in cascade_rows(manifest).values():
        assert value in page
    assert "cascade" not in report_html(ReportData(replace(manifest, cascade=None))).decode()


def test_a_band_without_an_upper_end_never_rejects_alone(tmp_path: Path) -> None:
    manifest = read_manifest(write_cascade(tmp_path / "bundle", (0.5, 1)).path)[0]
    assert cascade_rows(manifest)["Rejects alone"] == "never"


def test_the_inspection_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_card(write_cascade(tmp_path / "bundle").path)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("cascade"))
    for part in (
        "decide 75 % of the held-out examples",
        "on 100.0 % of them",
        "at least 90.0 %",
        "1.2 in a batch of 1",
    ):
        assert part in line
