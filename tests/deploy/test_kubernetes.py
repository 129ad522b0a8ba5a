"""deploy/kubernetes: settings, rights and probes."""

from typing import Any

import pytest
import yaml

from service.app import create_app
from service.settings import PREFIX, Settings
from tests.deploy.support import ROOT, SETTINGS


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
