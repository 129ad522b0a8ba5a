"""deploy/kubernetes around the Deployment: scaling, rules and dashboards for operators, overlays; and the runbook."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from demur.service.settings import PREFIX, Settings
from docs.dashboards.files import kubernetes
from tests.support.deployment import ALERTS, ROOT, RULE_FILES, SETTINGS
from tests.support.promql import series_names

FOLDER, OVERLAYS = ROOT / "deploy/kubernetes", ROOT / "deploy/overlays"


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


MANIFEST = {one["kind"]: one for one in documents(FOLDER / "demur.yaml")}
DEPLOYMENT = MANIFEST["Deployment"]


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
    assert series_names(trigger["metadata"]["query"]) == {"demur_queue_rows"}


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


@pytest.mark.parametrize("folder", [FOLDER, *sorted(path.parent for path in OVERLAYS.glob("*/kustomization.yaml"))])
def test_kustomizations_make_valid_objects(folder: Path, tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    made = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (tmp_path / "made.yaml").write_text(made.stdout)
    validate = [sys.executable, "-m", "kubernetes_validate", "--quiet", "--strict", str(tmp_path / "made.yaml")]
    checked = subprocess.run(validate, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("folder", [FOLDER, *sorted(path.parent for path in OVERLAYS.glob("*/kustomization.yaml"))])
def test_kustomizations_name_what_is_there_and_no_folder_above_them(folder: Path) -> None:
    """kubectl refuses a folder above as a cycle."""
    (found,) = documents(folder / "kustomization.yaml")
    for name in found["resources"]:
        place = (folder / name).resolve()
        assert place.is_file() or (place / "kustomization.yaml").is_file()
        assert place not in folder.parents


def patches(name: str) -> dict[str, list[dict[str, Any]]]:
    """The operations of an overlay on each kind of object."""
    (overlay,) = documents(OVERLAYS / name / "kustomization.yaml")
    return {patch["target"]["kind"]: yaml.safe_load(patch["patch"]) for patch in overlay["patches"]}


def test_grpc_is_one_port_of_the_proxy_and_of_all_in_front_of_it() -> None:
    found = {kind: patched(MANIFEST[kind], operations) for kind, operations in patches("grpc").items()}
    service, proxy = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in service["env"]}
    configuration = (ROOT / "deploy/nginx/nginx.conf").read_text()
    assert f"server demur:{variables['DEMUR_GRPC_PORT']} " in configuration
    (port,) = [one for one in proxy["ports"] if one["name"] == "grpc"]
    assert f"listen {port['containerPort']} http2" in configuration
    (outside,) = [one for one in found["Service"]["spec"]["ports"] if one["name"] == "grpc"]
    assert outside["targetPort"] == port["name"]
    assert {"port": port["name"]} in found["NetworkPolicy"]["spec"]["ingress"][0]["ports"]


def test_the_overlay_gives_the_service_its_keys() -> None:
    spec = patched(DEPLOYMENT, patches("keys")["Deployment"])["spec"]["template"]["spec"]
    service = spec["containers"][0]
    variables = {one["name"]: one["value"] for one in service["env"]}
    assert variables.keys() <= SETTINGS
    settings = Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in variables.items()})
    assert settings.api_keys_file is not None
    (mount,) = [one for one in service["volumeMounts"] if Path(one["mountPath"]) == settings.api_keys_file.parent]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert (
        f"create secret generic {volume['secret']['secretName']} --from-file={settings.api_keys_file.name}"
        in (OVERLAYS / "keys/kustomization.yaml").read_text()
    )


def test_every_alert_leads_to_its_section_of_the_runbook() -> None:
    page = (ROOT / "docs/runbook.md").read_text()
    sections = {f"docs/runbook.md#{title.lower()}" for title in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
    linked = {alert["alert"]: alert["annotations"]["runbook_url"] for alert in ALERTS}
    for name, url in linked.items():
        assert name.lower().startswith(url.partition("#")[2])
    assert set(linked.values()) == sections
