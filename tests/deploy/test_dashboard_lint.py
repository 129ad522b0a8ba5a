"""The documented rules of Grafana's dashboard-linter, each under the name that it has there.

Source: https://github.com/grafana/dashboard-linter/blob/main/docs/index.md and the pages in docs/rules beside it. Two
of the rules allow exceptions with a reason; those stand here. `target-promql-rule` is in test_prometheus.py, where
Prometheus' own parser reads every expression. The rules on LogQL do not apply.
"""

import re
from typing import Any

import pytest

from tests.support.deployment import DASHBOARDS, PANELS, variables
from tests.support.promql import RECORDED_SERIES, series_names

each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Those in use here, of packages/grafana-data/src/valueFormats/categories.ts in Grafana's repository.
UNITS = {"short", "percentunit", "s", "bytes", "reqps", "cps"}
# "Cases where one deliberately wants to show the rate or increase over a fixed period": shares over the chosen window,
# since a share of a few seconds' examples says nothing, and the last day, which the window is compared with.
CHOSEN_RANGES = {"$window", "1d"}


@each_dashboard
def test_template_datasource_rule(dashboard: dict[str, Any]) -> None:
    (source,) = (one for one in dashboard["templating"]["list"] if one["type"] == "datasource")
    assert (source["name"], source["label"], source["query"]) == ("datasource", "Data source", "prometheus")


@each_dashboard
@pytest.mark.parametrize("name", ["job", "instance"])
def test_template_job_rule_and_template_instance_rule(dashboard: dict[str, Any], name: str) -> None:
    variable = variables(dashboard)[name]
    assert variable["label"].lower() == name
    assert variable["type"] == "query"
    assert variable["datasource"] == SOURCE
    assert variable["multi"] is True
    assert variable["includeAll"] is True
    assert variable["allValue"] == ".+"


@each_dashboard
def test_template_label_promql_rule(dashboard: dict[str, Any]) -> None:
    for variable in variables(dashboard).values():
        if variable["type"] == "query":
            assert re.fullmatch(r"label_values\(\w+(\{\w+=~\"\$\w+\"\})?, \w+\)", variable["query"]["query"])


@each_dashboard
def test_template_on_time_change_reload_rule(dashboard: dict[str, Any]) -> None:
    for variable in variables(dashboard).values():
        if variable["type"] == "query":
            assert variable["refresh"] == 2


@each_dashboard
def test_uneditable_dashboard_rule(dashboard: dict[str, Any]) -> None:
    assert dashboard["editable"] is False


@each_panel
def test_panel_datasource_rule(panel: dict[str, Any]) -> None:
    for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
        assert source == SOURCE


@each_dashboard
def test_annotations_have_no_datasource_of_their_own(dashboard: dict[str, Any]) -> None:
    """No documented rule: a source that is not the variable breaks in every other Grafana."""
    assert {one["datasource"]["uid"] for one in dashboard["annotations"]["list"]} == {"${datasource}"}


@each_panel
def test_panel_title_description_rule(panel: dict[str, Any]) -> None:
    assert panel["title"].strip()
    assert panel["description"].strip()


@each_panel
def test_panel_units_rule(panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


@each_panel
def test_panel_no_targets_rule(panel: dict[str, Any]) -> None:
    assert panel["targets"]


@each_panel
def test_target_rate_interval_rule(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        for function, window in re.findall(r"\b(rate|irate|increase) ?\([^\[\]]*\[([^\]]*)\]", target["expr"]):
            if function == "increase":
                assert window in CHOSEN_RANGES
            else:
                assert window == "$__rate_interval"
        assert not re.findall(r"\[(?!\$__rate_interval|\$window|1d)", target["expr"])


@each_panel
def test_target_job_rule_and_target_instance_rule(panel: dict[str, Any]) -> None:
    """Recorded ratios are of all instances of a job: they have no label for one."""
    for target in panel["targets"]:
        names = series_names(target["expr"])
        selectors = re.findall(r"\b[a-z]\w*(?::\w+)*\{([^}]*)\}", target["expr"])
        assert len(selectors) >= len(names)
        for matchers in selectors:
            assert 'job=~"$job"' in matchers
            assert 'instance=~"$instance"' in matchers or names <= RECORDED_SERIES.keys()
