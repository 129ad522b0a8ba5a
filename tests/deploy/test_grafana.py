"""The dashboard explains itself and shows what there is."""

import itertools
import json
import re
from typing import Any

import pytest

from tests.support.deployment import (
    DASHBOARD,
    PANELS,
    VARIABLES,
)
from tests.support.promql import EXPORTED, grouped_labels


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panels_explain_themselves(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert re.fullmatch(r"[A-Z][^\n]*[^.]\.", panel["description"])
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]


def test_panels_do_not_overlap() -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        for cell in itertools.product(columns, rows):
            assert cells.setdefault(cell, panel["title"]) == panel["title"]
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert len(set(titles)) == len(titles)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(titles)


def test_panels_use_the_variables_of_the_dashboard() -> None:
    text = json.dumps(DASHBOARD)
    used = set(re.findall(r"\$\{?([a-z]\w*)", text))
    assert used == VARIABLES.keys() == {"datasource", "model"}
    for panel in PANELS:
        for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
            assert source == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


def test_the_model_variable_lists_a_label_that_exists() -> None:
    query = re.fullmatch(r"label_values\((\w+), (\w+)\)", VARIABLES["model"]["query"]["query"])
    assert query is not None
    assert query[2] in EXPORTED[query[1]]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_legends_and_tables_show_labels_that_remain(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped_labels(target["expr"])
    for transformation in panel.get("transformations", []):
        shown = {transformation["options"]["rowField"], transformation["options"]["columnField"]}
        assert shown <= grouped_labels(panel["targets"][0]["expr"])
