"""What `make docs` writes from settings and results is what stands in the pages."""

import pytest

from demur.offline.config import FitConfig
from demur.service.settings import Settings
from docs import figures, fit_options, settings
from docs.marked import replace_part
from paper.page import page as paper
from paper.page import results

REMEDY = "run `make docs`"


def test_the_settings_page_is_up_to_date() -> None:
    assert settings.PAGE.read_text() == settings.page(), REMEDY


def test_the_settings_page_has_every_setting_once() -> None:
    text = settings.page()
    for name, field in Settings.model_fields.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `DEMUR_{name.upper()}` |")]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[3] == field.description
        assert cells[1]
        assert cells[4]


def test_a_setting_without_advice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(settings.WHEN["Log"], "log_level")
    with pytest.raises(KeyError, match="log_level"):
        settings.page()


def test_the_options_of_a_fit_are_up_to_date_and_described() -> None:
    page = fit_options.PAGE.read_text()
    ((name, content),) = fit_options.parts().items()
    assert page == replace_part(page, name, content), REMEDY
    assert all(field.description for field in FitConfig.model_fields.values())


def test_the_figures_are_those_of_the_results() -> None:
    for path, parts in ((figures.PAGE, figures.parts()), (figures.MONITORING, figures.parts_of_monitoring())):
        page = path.read_text()
        for name, content in parts.items():
            assert page == replace_part(page, name, content), REMEDY
    tables = figures.tables()
    assert {path: path.read_text() for path in tables} == tables, REMEDY
    assert set(figures.TABLES.iterdir()) == set(tables)


def test_the_page_of_the_papers_experiments_is_that_of_the_results() -> None:
    files = paper.files()
    assert {path: path.read_text() for path in files} == files, "run `python -m paper page`"
    assert set(results.TABLES.iterdir()) == set(files) - {paper.PAGE}


@pytest.mark.parametrize("text", ["no marks", "<!-- a -->\n<!-- end of a -->\n<!-- a -->\n"])
def test_marks_that_are_not_a_pair_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected one"):
        replace_part(text, "a", "content")
