"""docker-compose.yml: mounts, rights, and services that find each other."""

import re
from pathlib import Path

import yaml

from service.app import create_app
from service.settings import PREFIX, Settings
from tests.deploy.support import (
    COMPOSE,
    COMPOSE_FILE,
    DOCKERFILE,
    GRAFANA,
    PROMETHEUS,
    ROOT,
    SCRAPES,
    SETTINGS,
    VARIABLES,
    environment,
    values,
    without_comments,
)


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
    assert environment("service")["PROBITY_BUNDLE"] in _mounts("probity")


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
    text = DOCKERFILE.read_text() + re.sub(r"\$\{[^}]*\}", "", without_comments(COMPOSE_FILE.read_text()))
    used = set(re.findall(rf"\b{PREFIX}\w+", text))
    assert used
    assert used <= SETTINGS


def test_services_find_each_other() -> None:
    port = environment("service")["PROBITY_PORT"]
    assert values("service", "EXPOSE") == [port]
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
