"""The files that run, watch and alert on the service agree with the service itself."""

import fnmatch
import http.server
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from service.app import create_app
from service.metrics import Metrics
from service.settings import PREFIX, Settings

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "Dockerfile"
COMPOSE_FILE = ROOT / "docker-compose.yml"
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"

COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SCRAPES: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards/probity.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES: dict[str, dict[str, Any]] = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not on PATH (Debian package: prometheus)"
)


# --------------------------------------------------------------------------- what the service exports

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
# What Prometheus adds to every scrape: a series of its own, and two labels on all of them.
PROMETHEUS_SERIES = {"up": frozenset[str]()}
PROMETHEUS_LABELS = {"job", "instance"}


def _exported() -> dict[str, frozenset[str]]:
    """Every series name that a scrape of the service can hold -> the names of its labels."""
    registry = CollectorRegistry()
    metrics = [metric for metric in vars(Metrics(registry)).values() if isinstance(metric, MetricWrapperBase)]
    labels = {family.name: metric._labelnames for metric in metrics for family in metric.describe()}
    return {
        family.name + suffix: frozenset(labels[family.name]) | ({"le"} if suffix == "_bucket" else set())
        for family in registry.collect()
        for suffix in SUFFIXES[family.type]
    }


EXPORTED = _exported()
SERIES = EXPORTED | PROMETHEUS_SERIES


# --------------------------------------------------------------------------- reading PromQL

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
GROUPING = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"
KEYWORDS = {"and", "or", "unless", "bool", "offset"}


def _bare(expression: str) -> str:
    """The expression with every quoted string emptied, so that nothing in it looks like syntax."""
    return re.sub(r'"[^"]*"', '""', expression)


def _metrics(expression: str) -> set[str]:
    """The series names that an expression selects: what is left without matchers, ranges, groupings and functions."""
    text = re.sub(rf"\{{[^}}]*\}}|\[[^\]]*\]|{GROUPING}", " ", _bare(expression))
    return set(re.findall(rf"(?<![\w:$.]){NAME}\b(?!\s*\()", text)) - KEYWORDS


def _matched_labels(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each series name with the labels its matchers name."""
    for name, matchers in re.findall(rf"({NAME})\{{([^}}]*)\}}", _bare(expression)):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))


def _grouped_labels(expression: str) -> set[str]:
    return {label.strip() for labels in re.findall(GROUPING, expression) for label in labels.split(",")}


EXPRESSIONS = {
    **{f"alert {rule['alert']}": rule["expr"] for rule in ALERTS},
    **{f"panel {panel['title']} {t['refId']}": t["expr"] for panel in PANELS for t in panel["targets"]},
}
each_expression = pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())


def test_the_reader_of_promql_finds_names_and_nothing_else() -> None:
    expression = (
        'histogram_quantile(0.9, sum by (le, job) (rate(a_bucket{x="{b}", y!~"c.*"}[$__rate_interval])))'
        " > bool 2 * max without (z) (d:e) and on (f) absent(g offset 5m)"
    )
    assert _metrics(expression) == {"a_bucket", "d:e", "g"}
    assert dict(_matched_labels(expression)) == {"a_bucket": {"x", "y"}}
    assert _grouped_labels(expression) == {"le", "job", "z", "f"}


@each_expression
def test_expressions_select_what_the_service_exports(expression: str) -> None:
    names = _metrics(expression)
    assert names
    assert names <= SERIES.keys()
    for name, labels in _matched_labels(expression):
        assert labels <= SERIES[name] | PROMETHEUS_LABELS, name
    assert _grouped_labels(expression) <= PROMETHEUS_LABELS.union(*(SERIES[name] for name in names))


@each_expression
def test_expressions_select_routes_that_exist(expression: str) -> None:
    routes = list(create_app([], Settings()).openapi()["paths"])
    for pattern in re.findall(r'\broute\s*(?:=~|!~|!=|=)\s*"([^"]*)"', expression):
        for alternative in pattern.split("|"):
            assert any(re.fullmatch(alternative, route) for route in routes), alternative


# --------------------------------------------------------------------------- alerts


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_alerts_say_how_bad_what_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["for"]
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]


def test_every_alert_is_tested_firing_and_quiet() -> None:
    tests = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())["tests"]
    checks = [check for test in tests for check in test["alert_rule_test"]]
    names = {rule["alert"] for rule in ALERTS}
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == names
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == names


def test_alerts_and_scrapes_name_the_same_job() -> None:
    jobs = {job for rule in ALERTS for job in re.findall(r'\bjob="([^"]*)"', rule["expr"])}
    assert jobs == {scrape["job_name"] for scrape in SCRAPES["scrape_configs"]}


@needs_promtool
@pytest.mark.parametrize(
    "command",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")],
)
def test_promtool_accepts_the_files(command: tuple[str, ...]) -> None:
    _promtool(*command, cwd=PROMETHEUS)


@needs_promtool
def test_promtool_accepts_the_dashboards_expressions(tmp_path: Path) -> None:
    expressions = [
        expression.replace("$__rate_interval", "1m").replace("$model", "m") for expression in EXPRESSIONS.values()
    ]
    rules = [{"record": f"expression:{index}", "expr": text} for index, text in enumerate(expressions)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    _promtool("check", "rules", "rules.yml", cwd=tmp_path)


def _promtool(*arguments: str, cwd: Path) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# --------------------------------------------------------------------------- dashboard


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
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= _grouped_labels(target["expr"])
    for transformation in panel.get("transformations", []):
        shown = {transformation["options"]["rowField"], transformation["options"]["columnField"]}
        assert shown <= _grouped_labels(panel["targets"][0]["expr"])


# --------------------------------------------------------------------------- compose


def _mounts(service: str) -> dict[str, tuple[str, bool]]:
    """Where a service of the compose file mounts things -> (what, read-only)."""
    mounts: dict[str, tuple[str, bool]] = {}
    for volume in COMPOSE["services"][service]["volumes"]:
        if isinstance(volume, dict):
            mounts[volume["target"]] = (volume["source"], volume.get("read_only", False))
        else:
            source, target, *mode = volume.split(":")
            mounts[target] = (source, mode == ["ro"])
    return mounts


def test_mounts_are_in_the_repository_and_read_only() -> None:
    for service in COMPOSE["services"]:
        for source, read_only in _mounts(service).values():
            if source.startswith("${"):
                assert read_only
            elif source.startswith("."):
                assert (ROOT / source).is_dir(), source
                assert read_only
            else:
                assert source in COMPOSE["volumes"]


def test_the_service_reads_the_bundle_where_it_is_mounted() -> None:
    assert _environment("service")["PROBITY_BUNDLE"] in _mounts("probity")


def test_the_service_is_confined() -> None:
    service = COMPOSE["services"]["probity"]
    assert service["build"] == {"context": ".", "target": "service"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]


def test_the_service_may_finish_before_it_is_killed() -> None:
    grace = re.fullmatch(r"(\d+)s", COMPOSE["services"]["probity"]["stop_grace_period"])
    assert grace is not None
    assert int(grace[1]) > Settings.model_fields["shutdown_seconds"].default


def test_foreign_images_have_a_version() -> None:
    for name, service in COMPOSE["services"].items():
        if "build" not in service:
            assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_settings_in_the_container_files_exist() -> None:
    # ${...} is filled in by compose from its own environment and never reaches the service under that name.
    text = DOCKERFILE.read_text() + re.sub(r"\$\{[^}]*\}", "", _without_comments(COMPOSE_FILE.read_text()))
    used = set(re.findall(rf"\b{PREFIX}\w+", text))
    assert used
    assert used <= SETTINGS


def test_services_find_each_other() -> None:
    port = _environment("service")["PROBITY_PORT"]
    assert _values("service", "EXPOSE") == [port]
    for scrape in SCRAPES["scrape_configs"]:
        assert scrape["metrics_path"] in set(create_app([], Settings()).openapi()["paths"])
        assert scrape["static_configs"] == [{"targets": [f"probity:{port}"]}]
    published = {name: service["ports"][0].split(":") for name, service in COMPOSE["services"].items()}
    assert published["probity"][-1] == port
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == f"http://prometheus:{published['prometheus'][-1]}"
    assert source["type"] == VARIABLES["datasource"]["query"]
    assert source["jsonData"]["timeInterval"] == SCRAPES["global"]["scrape_interval"]


def test_files_lie_where_prometheus_and_grafana_look() -> None:
    assert _mounts("prometheus")["/etc/prometheus"][0] == "./deploy/prometheus"
    assert all((PROMETHEUS / name).is_file() for name in SCRAPES["rule_files"])
    mounts = _mounts("grafana")
    for kind in ("datasources", "dashboards"):
        assert mounts[f"/etc/grafana/provisioning/{kind}"][0] == f"./deploy/grafana/provisioning/{kind}"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/probity.yml").read_text())["providers"]
    folder = provider["options"]["path"]
    assert mounts[folder][0] == "./deploy/grafana/dashboards"
    home = Path(COMPOSE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.parent == Path(folder)
    assert (GRAFANA / "dashboards" / home.name).is_file()


# --------------------------------------------------------------------------- Dockerfile


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@dataclass(frozen=True)
class Stage:
    """One stage of the Dockerfile: what it starts from and its instructions, (keyword, rest of the line)."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)


def _stages() -> dict[str, Stage]:
    stages: dict[str, Stage] = {}
    lines = _without_comments(DOCKERFILE.read_text()).replace("\\\n", " ").splitlines()
    for keyword, rest in (line.split(maxsplit=1) for line in lines if line.strip()):
        if keyword == "FROM":
            base, _, name = rest.split()
            stages[name] = Stage(base)
        else:
            list(stages.values())[-1].instructions.append((keyword, re.sub(r"\s+", " ", rest)))
    return stages


STAGES = _stages()


def _lineage(name: str) -> list[Stage]:
    """A stage, the stages it starts from, and those it copies from."""
    if name not in STAGES:
        return []
    stage = STAGES[name]
    sources = [source for keyword, rest in stage.instructions for source in re.findall(r"^--from=(\S+)", rest)]
    return [stage, *(found for other in (stage.base, *sources) for found in _lineage(other))]


def _values(stage: str, keyword: str) -> list[str]:
    return [rest for found, rest in STAGES[stage].instructions if found == keyword]


def _environment(stage: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for line in _values(stage, "ENV") for pair in line.split())


def _copied(stage: str) -> set[str]:
    """What a target takes from the repository, in all its stages."""
    copies = [rest.split() for found in _lineage(stage) for keyword, rest in found.instructions if keyword == "COPY"]
    return {source.rstrip("/") for words in copies if not words[0].startswith("--from=") for source in words[:-1]}


def _commands(stage: str) -> list[str]:
    return [rest for found in _lineage(stage) for keyword, rest in found.instructions if keyword == "RUN"]


def test_the_service_image_holds_no_offline_code() -> None:
    assert _copied("service") == {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "service"}
    assert not any("offline" in command or "torch" in command for command in _commands("service"))
    assert not any(keyword == "ADD" for stage in STAGES.values() for keyword, _ in stage.instructions)


def test_the_service_image_has_no_command_that_needs_offline_code() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    commands = " ".join(_commands("service"))
    for name, target in scripts.items():
        assert not target.startswith("offline.") or f"rm /venv/bin/{name}" in commands


def test_the_offline_image_runs_a_command_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entrypoint,) = _values("offline", "ENTRYPOINT")
    assert json.loads(entrypoint)[0] in project["scripts"]
    assert "offline" in _copied("offline")
    extras = {extra for command in _commands("offline") for extra in re.findall(r"\.\[(\w+)\]", command)}
    assert extras == {"offline"} <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("target", ["service", "offline"])
def test_what_an_image_copies_exists_and_is_not_ignored(target: str) -> None:
    rules = _without_comments((ROOT / ".dockerignore").read_text()).split()
    for source in _copied(target):
        assert (ROOT / source).exists(), source
        decisive = [rule for rule in rules if fnmatch.fnmatch(source, rule.removeprefix("!"))][-1]
        assert decisive.startswith("!"), source


@pytest.mark.parametrize("target", ["service", "offline"])
def test_images_do_not_run_as_root(target: str) -> None:
    assert _values(target, "USER") == ["10001:10001"]


def test_the_service_starts_the_package_it_ships() -> None:
    (entrypoint,) = _values("service", "ENTRYPOINT")
    python, flag, module = json.loads(entrypoint)
    assert (python, flag) == ("python", "-m")
    assert (ROOT / module / "__main__.py").is_file()
    assert list(STAGES)[-1] == "service"


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False), (None, False)])
def test_the_health_check_tells_ready_from_not_ready(status: int | None, healthy: bool) -> None:
    (line,) = _values("service", "HEALTHCHECK")
    _, flag, code = json.loads(line.partition("CMD ")[2])
    asked: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status or 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        if status is None:
            server.server_close()
        else:
            thread.start()
        # A proxy in the environment must not be asked: nothing listens there.
        environment = {**os.environ, "PROBITY_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
        try:
            done = subprocess.run([sys.executable, flag, code], env=environment, capture_output=True)
        finally:
            if thread.is_alive():
                server.shutdown()
                thread.join()
    assert (done.returncode == 0) is healthy
    assert asked == ([] if status is None else ["/health/ready"])
    assert "/health/ready" in set(create_app([], Settings()).openapi()["paths"])


# --------------------------------------------------------------------------- Kubernetes


@pytest.fixture(scope="module")
def pod() -> dict[str, Any]:
    documents = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/probity.yaml").read_text()))
    assert [document["kind"] for document in documents] == ["Deployment", "Service"]
    deployment, service = documents
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def test_the_pod_s_settings_are_settings_of_the_service(pod: dict[str, Any]) -> None:
    variables = {entry["name"]: entry["value"] for entry in pod["containers"][0]["env"]}
    assert variables.keys() <= SETTINGS
    settings = Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in variables.items()})
    assert settings.bundles == ()
    assert str(settings.models) == pod["containers"][0]["volumeMounts"][0]["mountPath"]
    assert pod["terminationGracePeriodSeconds"] > settings.drain_seconds + settings.shutdown_seconds
    assert pod["enableServiceLinks"] is False


def test_the_pod_has_no_rights_and_its_probes_tell_the_truth(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    paths = set(create_app([], Settings()).openapi()["paths"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"] is True
