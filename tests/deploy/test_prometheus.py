"""Alerts and scrapes agree with what the service exports; so do the dashboards' expressions."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from demur.service.app import create_app
from demur.service.settings import Settings
from tests.support.deployment import ALERTS, DASHBOARDS, PANELS, PROMETHEUS, RECORDED, RULE_FILES, filled
from tests.support.promql import PROMETHEUS_LABELS, SERIES, grouped_labels, matched_labels, series_names

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not on PATH (Debian package: prometheus)"
)

TESTS = ("alerts.test.yml", "error_budget.test.yml")

EXPRESSIONS = {
    **{f"alert {rule['alert']}": rule["expr"] for rule in ALERTS},
    **{f"rule {name}": expression for name, expression in RECORDED.items()},
    **{f"panel {panel['title']} {t['refId']}": t["expr"] for panel in PANELS for t in panel["targets"]},
    **{
        f"annotation {name} {one['name']}": one["expr"]
        for name, dashboard in DASHBOARDS.items()
        for one in dashboard["annotations"]["list"]
    },
}
each_expression = pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())


def test_the_reader_of_promql_finds_names_and_nothing_else() -> None:
    expression = (
        'histogram_quantile(0.9, sum by (le, job) (rate(a_bucket{x="{b}", y!~"c.*"}[$__rate_interval])))'
        " > bool 2 * max without (z) (d:e) and on (f) absent(g offset 5m)"
    )
    assert series_names(expression) == {"a_bucket", "d:e", "g"}
    assert dict(matched_labels(expression)) == {"a_bucket": {"x", "y"}}
    assert grouped_labels(expression) == {"le", "job", "z", "f"}


@each_expression
def test_expressions_select_what_the_service_exports(expression: str) -> None:
    names = series_names(expression)
    assert names
    assert names <= SERIES.keys()
    for name, labels in matched_labels(expression):
        assert labels <= SERIES[name] | PROMETHEUS_LABELS, name
    assert grouped_labels(expression) <= PROMETHEUS_LABELS.union(*(SERIES[name] for name in names))


def test_expressions_select_routes_that_exist() -> None:
    routes = list(create_app([], Settings()).openapi()["paths"])
    found = re.findall(r'\broute\s*(?:=~|!~|!=|=)\s*"([^"]*)"', "\n".join(EXPRESSIONS.values()))
    assert found
    for alternative in {one for pattern in found for one in pattern.split("|")}:
        assert any(re.fullmatch(alternative, route) for route in routes), alternative


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alerts_say_how_bad_what_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["for"]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]


def test_every_alert_is_tested_firing_and_quiet() -> None:
    tests = [test for file in TESTS for test in yaml.safe_load((PROMETHEUS / file).read_text())["tests"]]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    names = {rule["alert"] for rule in ALERTS}
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == names
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == names


def test_expressions_find_the_service_whatever_its_job_is_called() -> None:
    found = re.findall(r'\bjob\s*(?:=~|!~|!=|=)\s*"[^"]*"', "\n".join(EXPRESSIONS.values()))
    assert set(found) == {'job=~"$job"'}


@each_expression
def test_expressions_never_mix_versions_of_a_model(expression: str) -> None:
    """Versions have buckets, references and rates of their own."""
    versioned = [name for name in series_names(expression) if "version" in SERIES[name]]
    for grouped in re.findall(r"\bby\s*\(([^)]*)\)", expression):
        assert not versioned or "version" in grouped.replace(",", " ").split()


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize(
    "command",
    [
        ("check", "config", "prometheus.yml"),
        *(("check", "rules", file.name) for file in RULE_FILES),
        *(("test", "rules", name) for name in TESTS),
    ],
)
def test_promtool_accepts_the_files(command: tuple[str, ...]) -> None:
    _promtool(*command, cwd=PROMETHEUS)


@pytest.mark.slow
@needs_promtool
def test_promtool_accepts_the_dashboards_expressions(tmp_path: Path) -> None:
    expressions = [filled(expression, "m") for expression in EXPRESSIONS.values()]
    rules = [{"record": f"expression:{index}", "expr": text} for index, text in enumerate(expressions)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    _promtool("check", "rules", "rules.yml", cwd=tmp_path)


def _promtool(*arguments: str, cwd: Path) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
