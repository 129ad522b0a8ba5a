"""deploy/kubernetes around the Deployment: scaling, rules and dashboards for operators, overlays; and the runbook."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.dashboards.files import kubernetes
from probity.service.settings import PREFIX, Settings
from tests.support.deployment import ALERTS, ROOT, RULE_FILES, SETTINGS
from tests.support.promql import series_names

FOLDER = ROOT / "deploy/kubernetes"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


DEPLOYMENT = next(one for one in documents(FOLDER / "probity.yaml") if one["kind"] == "Deployment")


def test_what_is_generated_is_up_to_date() -> None:
    files = kubernetes()
    assert {path: path.read_text() for path in files} == files, "run `make docs`"


def test_operators_get_the_same_rules_and_grafana_the_same_dashboards() -> None:
    monitor, rules = documents(FOLDER / "operators/prometheus.yaml")
    groups = [group for file in RULE_FILES for group in yaml.safe_load(file.read_text())["groups"]]
    assert rules["spec"]["groups"] == groups
    ports = {port["name"] for one in DEPLOYMENT["spec"]["template"]["spec"]["containers"] for port in one["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports
    assert monitor["spec"]["selector"] == DEPLOYMENT["spec"]["selector"]
    for one in documents(FOLDER / "dashboards.yaml"):
        ((name, text),) = one["data"].items()
        assert json.loads(text) == json.loads((ROOT / "deploy/grafana/dashboards" / name).read_text())


def test_both_ways_to_scale_have_the_deployment_and_the_same_bounds() -> None:
    (scaler,) = documents(FOLDER / "scaling.yaml")
    (keda,) = documents(FOLDER / "operators/keda.yaml")
    name = DEPLOYMENT["metadata"]["name"]
    assert scaler["spec"]["scaleTargetRef"]["name"] == keda["spec"]["scaleTargetRef"]["name"] == name
    bounds = scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]
    assert bounds == (keda["spec"]["minReplicaCount"], keda["spec"]["maxReplicaCount"])
    (trigger,) = keda["spec"]["triggers"]
    assert series_names(trigger["metadata"]["query"]) == {"probity_queue_rows"}


def patched(document: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """The document after additions at the ends of lists, as JSON Patch (RFC 6902) writes them."""
    found = copy.deepcopy(document)
    for operation in operations:
        assert operation["op"] == "add"
        *way, last = operation["path"].strip("/").split("/")
        assert last == "-"
        place: Any = found
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place.append(operation["value"])
    return found


@pytest.mark.parametrize("folder", [FOLDER, *(path.parent for path in FOLDER.glob("overlays/*/kustomization.yaml"))])
def test_kustomizations_name_files_that_are_there(folder: Path) -> None:
    (found,) = documents(folder / "kustomization.yaml")
    for name in found["resources"]:
        assert (folder / name).is_file() or (folder / name / "kustomization.yaml").is_file()


def test_the_overlay_gives_the_service_its_keys() -> None:
    (overlay,) = documents(FOLDER / "overlays/keys/kustomization.yaml")
    (patch,) = overlay["patches"]
    spec = patched(DEPLOYMENT, yaml.safe_load(patch["patch"]))["spec"]["template"]["spec"]
    service = spec["containers"][0]
    variables = {one["name"]: one["value"] for one in service["env"]}
    assert variables.keys() <= SETTINGS
    settings = Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in variables.items()})
    assert settings.api_keys_file is not None
    (mount,) = [one for one in service["volumeMounts"] if Path(one["mountPath"]) == settings.api_keys_file.parent]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert (
        f"create secret generic {volume['secret']['secretName']} --from-file={settings.api_keys_file.name}"
        in (FOLDER / "overlays/keys/kustomization.yaml").read_text()
    )


def test_every_alert_leads_to_its_section_of_the_runbook() -> None:
    page = (ROOT / "docs/runbook.md").read_text()
    sections = {f"docs/runbook.md#{title.lower()}" for title in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
    linked = {alert["alert"]: alert["annotations"]["runbook_url"] for alert in ALERTS}
    for name, url in linked.items():
        assert name.lower().startswith(url.partition("#")[2])
    assert set(linked.values()) == sections
