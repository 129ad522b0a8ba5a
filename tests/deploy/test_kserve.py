"""deploy/kserve: what KServe passes is taken, and what its files name is there."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from demur.cli import app
from demur.service.app import create_app
from demur.service.inference.predictor import Predictor
from demur.service.monitoring.metrics import Metrics
from demur.service.oip.metadata import metadata
from demur.service.settings import PREFIX, Settings
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.deployment import FOR_MODELS, ROOT, SETTINGS, memory_of_requests

FOLDER = ROOT / "deploy/kserve"
GRACE_SECONDS = 30  # what Kubernetes gives a pod by default


def document(name: str) -> dict[str, Any]:
    (found,) = documents(name)
    return found


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


@pytest.fixture(scope="module")
def container() -> dict[str, Any]:
    (found,) = document("runtime.yaml")["spec"]["containers"]
    return dict(found)


def test_the_runtimes_options_and_settings_are_the_services(container: dict[str, Any]) -> None:
    options = [argument.partition("=")[0] for argument in container["args"]]
    usage = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["serve", "--help"]).output
    assert all(option in usage for option in options)
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    assert variables.keys() <= SETTINGS
    settings = Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in variables.items()})
    assert settings.drain_seconds + settings.shutdown_seconds <= GRACE_SECONDS


def test_ports_probes_and_memory(container: dict[str, Any]) -> None:
    (port,) = container["ports"]
    assert f"--http_port={port['containerPort']}" in container["args"]
    annotations = document("runtime.yaml")["spec"]["annotations"]
    assert annotations["prometheus.kserve.io/port"] == str(port["containerPort"])
    paths = {*create_app([], Settings()).openapi()["paths"], annotations["prometheus.kserve.io/path"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
        assert container[probe]["httpGet"]["port"] == port["containerPort"]
    limits = container["resources"]["limits"]
    assert memory_of_requests(int(limits["cpu"])) + FOR_MODELS <= int(limits["memory"].removesuffix("Gi")) * 2**30


def test_the_metric_that_scales_it_is_one_of_the_services() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    (metric,) = document("service.yaml")["spec"]["predictor"]["autoScaling"]["metrics"]
    query = metric["external"]["metric"]["query"]
    assert any(f"({family.name}{{" in query for family in registry.collect())


def test_the_canary_divides_all_requests_between_services_of_one_format() -> None:
    now, (later, graph) = document("service.yaml"), documents("canary.yaml")
    steps = graph["spec"]["nodes"]["root"]["steps"]
    assert [step["serviceName"] for step in steps] == [service["metadata"]["name"] for service in (now, later)]
    assert sum(step["weight"] for step in steps) == 100
    models = [service["spec"]["predictor"]["model"] for service in (now, later)]
    places = [model.pop("storageUri") for model in models]
    assert models[0] == models[1]
    assert places[0] != places[1]


def test_formats_and_outputs_that_are_named_are_there(tmp_path: Path) -> None:
    (format_,) = document("runtime.yaml")["spec"]["supportedModelFormats"]
    model = document("service.yaml")["spec"]["predictor"]["model"]
    assert model["modelFormat"]["name"] == format_["name"]
    assert model["protocolVersion"] in document("runtime.yaml")["spec"]["protocolVersions"]
    bundle = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC).path
    outputs = {output["name"] for output in metadata(Predictor.load(bundle), ["1"])["outputs"]}
    steps = document("graph.yaml")["spec"]["nodes"]["root"]["steps"]
    conditions = [step["condition"] for step in steps if "condition" in step]
    assert conditions
    assert all('name=="rejected"' in condition for condition in conditions)
    assert "rejected" in outputs
