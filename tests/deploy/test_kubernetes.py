"""deploy/kubernetes: settings, rights and probes."""

from typing import Any

import pytest
import yaml

from demur.service.app import create_app
from demur.service.settings import PREFIX, Settings
from tests.support.deployment import COMPOSE, FOR_MODELS, NGINX_TEXT, ROOT, SETTINGS, memory_of_requests


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    found = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/demur.yaml").read_text()))
    kinds = ["ConfigMap", "Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"]
    assert [document["kind"] for document in found] == kinds
    return {document["kind"]: document for document in found}


@pytest.fixture(scope="module")
def pod(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    template = documents["Deployment"]["spec"]["template"]
    assert documents["Service"]["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    spec: dict[str, Any] = template["spec"]
    assert [container["name"] for container in spec["containers"]] == ["demur", "proxy"]
    return spec


def test_the_pod_s_settings_are_settings_of_the_service(pod: dict[str, Any]) -> None:
    service, proxy = pod["containers"]
    variables = {entry["name"]: entry["value"] for entry in service["env"]}
    assert variables.keys() <= SETTINGS
    settings = Settings(**{name.removeprefix(PREFIX).lower(): value for name, value in variables.items()})
    assert settings.bundles == ()
    assert str(settings.models) == service["volumeMounts"][0]["mountPath"]
    assert pod["terminationGracePeriodSeconds"] > settings.drain_seconds + settings.shutdown_seconds
    assert settings.drain_seconds > int(proxy["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["enableServiceLinks"] is False


def test_every_pod_has_the_secret_for_receipts(pod: dict[str, Any]) -> None:
    (volume,) = [one for one in pod["volumes"] if "secret" in one]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    (file,) = [one["value"] for one in pod["containers"][0]["env"] if one["name"] == f"{PREFIX}FEEDBACK_SECRET_FILE"]
    created = f"kubectl create secret generic {volume['secret']['secretName']} --from-literal=secret="
    assert created in (ROOT / "deploy/kubernetes/demur.yaml").read_text()
    assert file == f"{mount['mountPath']}/secret"


def test_the_pod_s_memory_fits_its_processors(pod: dict[str, Any]) -> None:
    limits = pod["containers"][0]["resources"]["limits"]
    assert limits["memory"].endswith("Gi")
    assert memory_of_requests(int(limits["cpu"])) + FOR_MODELS <= int(limits["memory"].removesuffix("Gi")) * 2**30


def test_the_pod_has_no_rights_and_its_probes_tell_the_truth(pod: dict[str, Any]) -> None:
    service, proxy = pod["containers"]
    paths = set(create_app([], Settings()).openapi()["paths"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert service[probe]["timeoutSeconds"] == 5
        assert service[probe]["httpGet"]["path"] in paths
        assert service[probe]["httpGet"]["port"] == service["ports"][0]["name"] == "direct"
    for probe in ("startupProbe", "livenessProbe"):
        assert service[probe]["httpGet"]["path"] == "/health/live"
    for container in (service, proxy):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"] is True


def test_the_service_leads_to_the_proxy_and_the_proxy_to_the_container_beside_it(
    documents: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    service, proxy = pod["containers"]
    (port,) = documents["Service"]["spec"]["ports"]
    assert port["targetPort"] == proxy["ports"][0]["name"]
    assert f"listen {proxy['ports'][0]['containerPort']} " in NGINX_TEXT
    assert pod["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["demur"]}]
    assert f"server demur:{service['ports'][0]['containerPort']} " in NGINX_TEXT
    assert "127.0.0.1" in Settings.model_fields["trusted_proxies"].default
    annotations = documents["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(service["ports"][0]["containerPort"])


def test_the_pod_runs_the_proxy_of_compose(documents: dict[str, dict[str, Any]], pod: dict[str, Any]) -> None:
    assert documents["ConfigMap"]["data"] == {"nginx.conf": NGINX_TEXT}
    proxy = pod["containers"][1]
    assert proxy["image"] == COMPOSE["services"]["proxy"]["image"]
    assert proxy["command"] == COMPOSE["services"]["proxy"]["command"]
    mounts = {mount["mountPath"]: mount["name"] for mount in proxy["volumeMounts"]}
    assert mounts == {"/etc/nginx/demur": "proxy", "/tmp": "bodies"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["proxy"]["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]


def test_clients_reach_the_proxy_alone_and_the_pods_reach_nobody(
    documents: dict[str, dict[str, Any]], pod: dict[str, Any]
) -> None:
    policy = documents["NetworkPolicy"]["spec"]
    assert policy["podSelector"] == documents["Deployment"]["spec"]["selector"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == []
    everybody, prometheus = policy["ingress"]
    service, proxy = pod["containers"]
    assert everybody == {"ports": [{"port": proxy["ports"][0]["name"]}]}
    assert prometheus["ports"] == [{"port": service["ports"][0]["name"]}]
    assert len(prometheus["from"]) == 1
