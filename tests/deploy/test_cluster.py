"""deploy/kubernetes around the Deployment: scaling, rules and dashboards for operators, components; and the runbook."""

import copy
import functools
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from demur.service.settings import PREFIX, Settings
from docs.dashboards.files import kubernetes
from tests.support.deployment import ALERTS, ROOT, RULE_FILES, SETTINGS
from tests.support.pages import ALL_PAGES, blocks
from tests.support.promql import series_names

FOLDER, COMPONENTS = ROOT / "deploy/kubernetes", ROOT / "deploy/components"
NAMES = sorted(path.parent.name for path in COMPONENTS.glob("*/kustomization.yaml"))
SUBSETS = [chosen for count in range(len(NAMES) + 1) for chosen in itertools.combinations(NAMES, count)]
PATHS = re.compile(r"kubectl apply -[kf] ([\w./-]*\w)")


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


def page_kustomization() -> dict[str, Any]:
    """The kustomization.yaml that the page tells to put at the root of a checkout."""
    (text,) = (text for language, text in blocks(ROOT / "docs/deploying.md") if language == "yaml")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def build(checkout: Path, components: Sequence[str]) -> list[dict[str, Any]]:
    """The objects of the page's kustomization.yaml with these components, which are valid."""
    for folder in (FOLDER, COMPONENTS):
        shutil.copytree(folder, checkout / folder.relative_to(ROOT), dirs_exist_ok=True)
    chosen = page_kustomization() | {"components": [f"deploy/components/{name}" for name in components]}
    (checkout / "kustomization.yaml").write_text(yaml.safe_dump(chosen))
    made = subprocess.run(["kubectl", "kustomize", checkout], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (checkout / "made.yaml").write_text(made.stdout)
    validate = [sys.executable, "-m", "kubernetes_validate", "--quiet", "--strict", str(checkout / "made.yaml")]
    checked = subprocess.run(validate, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    return documents(checkout / "made.yaml")


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Each value with the names that lead to it; where in a list it stands does not count."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{place}/{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{place}/-")
    else:
        yield place, repr(value)


def contents(objects: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter(leaf for one in objects for leaf in leaves(one, f"{one['kind']} {one['metadata']['name']}"))


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[str]], tuple[Counter[Any], Counter[Any]]]:
    """What components add to the objects without any, and what they remove."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")

    @functools.cache
    def contents_with(*components: str) -> Counter[Any]:
        return contents(build(tmp_path_factory.mktemp("checkout"), components))

    def changed(components: Sequence[str]) -> tuple[Counter[Any], Counter[Any]]:
        return contents_with(*components) - contents_with(), contents_with() - contents_with(*components)

    return changed


@pytest.mark.parametrize("components", SUBSETS, ids="+".join)
def test_components_go_together(
    components: tuple[str, ...], changes: Callable[[Sequence[str]], tuple[Counter[Any], Counter[Any]]]
) -> None:
    """Whichever are chosen, in whatever order, each changes what it changes alone, and nothing else is changed."""
    alone = [changes([name]) for name in components]
    expected = sum((added for added, _ in alone), Counter()), sum((removed for _, removed in alone), Counter())
    assert all(added or removed for added, removed in alone)
    assert changes(components) == changes(components[::-1]) == expected


def test_kustomizations_name_what_is_there_and_no_folder_above_them() -> None:
    """kubectl refuses a folder above as a cycle."""
    (base,) = documents(FOLDER / "kustomization.yaml")
    for folder, found in ((FOLDER, base), (ROOT, page_kustomization())):
        for name in found["resources"] + found.get("components", []):
            place = (folder / name).resolve()
            assert place.is_file() or (place / "kustomization.yaml").is_file()
            assert place not in folder.parents


def test_the_page_has_every_component_and_its_kustomization_names_some() -> None:
    rows = re.findall(r"^\| `deploy/components/(\w+)` \|", (ROOT / "docs/deploying.md").read_text(), re.MULTILINE)
    assert sorted(rows) == NAMES
    found = page_kustomization()
    assert found["resources"] == ["deploy/kubernetes"]
    assert {f"deploy/components/{name}" for name in NAMES} >= set(found["components"]) > set()
    assert {documents(COMPONENTS / name / "kustomization.yaml")[0]["kind"] for name in NAMES} == {"Component"}


def test_what_is_to_be_applied_is_there() -> None:
    """As pages and the files themselves say it; `.` is where the page's kustomization.yaml stands."""
    texts = [path.read_text() for path in (*ALL_PAGES, *(ROOT / "deploy").rglob("*.yaml"))]
    named = {path for text in texts for path in PATHS.findall(text)}
    assert {"deploy/kubernetes", "deploy/kubernetes/operators/keda.yaml"} <= named
    for path in named:
        assert (ROOT / path).is_file() or (ROOT / path / "kustomization.yaml").is_file(), path


def patches(name: str) -> dict[str, list[dict[str, Any]]]:
    """The operations of a component on each kind of object."""
    (component,) = documents(COMPONENTS / name / "kustomization.yaml")
    return {patch["target"]["kind"]: yaml.safe_load(patch["patch"]) for patch in component["patches"]}


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


def test_the_component_gives_the_service_its_keys() -> None:
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
        in (COMPONENTS / "keys/kustomization.yaml").read_text()
    )


def test_every_alert_leads_to_its_section_of_the_runbook() -> None:
    page = (ROOT / "docs/runbook.md").read_text()
    sections = {f"docs/runbook.md#{title.lower()}" for title in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
    linked = {alert["alert"]: alert["annotations"]["runbook_url"] for alert in ALERTS}
    for name, url in linked.items():
        assert name.lower().startswith(url.partition("#")[2])
    assert set(linked.values()) == sections
