"""The dashboards explain themselves, show what there is, and are what `make docs` writes."""

import itertools
import json
import re
from typing import Any

import pytest

from docs.dashboards import rules
from docs.dashboards.files import PAGE, RULES, dashboards, parts
from docs.marked import replace_part
from tests.support.deployment import DASHBOARDS, PANELS, variables
from tests.support.promql import EXPORTED, grouped_labels

REMEDY = "run `make docs`"
each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())


def test_what_is_generated_is_up_to_date() -> None:
    assert {path.stem for path in dashboards()} == DASHBOARDS.keys() == {"health", "uncertainty", "drift"}
    for path, text in dashboards().items():
        assert path.read_text() == text, REMEDY
    assert RULES.read_text() == rules.page(), REMEDY
    for name, content in parts().items():
        assert PAGE.read_text() == replace_part(PAGE.read_text(), name, content), REMEDY


@each_panel
def test_panels_explain_themselves(panel: dict[str, Any]) -> None:
    assert re.fullmatch(r"[A-Z][^\n]*[^.]\.", panel["description"])
    assert panel["targets"]


@each_dashboard
def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        for cell in itertools.product(columns, rows):
            assert cells.setdefault(cell, panel["title"]) == panel["title"]
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(set(titles)) == len(titles)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(titles)


def test_titles_and_identifiers_are_unique_over_all_dashboards() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    assert len({one["uid"] for one in DASHBOARDS.values()}) == len(DASHBOARDS)


@each_dashboard
def test_panels_use_the_variables_of_the_dashboard(dashboard: dict[str, Any]) -> None:
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard)))
    assert used == variables(dashboard).keys() == {"datasource", "job", "instance", "model", "window"}


@each_dashboard
def test_the_variables_list_labels_that_exist(dashboard: dict[str, Any]) -> None:
    for name, variable in variables(dashboard).items():
        if variable["type"] == "query":
            query = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
            assert query is not None
            assert query[2] in EXPORTED[query[1]] | {"job", "instance"}, name


@each_panel
def test_legends_show_labels_that_remain(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped_labels(target["expr"])


@each_dashboard
def test_every_panel_is_split_by_version_where_a_model_is_chosen(dashboard: dict[str, Any]) -> None:
    """A canary shows beside the version that it may replace."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            if 'model="$model"' in target["expr"]:
                assert "{{version}}" in target["legendFormat"], panel["title"]
