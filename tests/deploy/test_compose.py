"""docker-compose.yml: mounts, rights, and services that find each other."""

import ipaddress
import re
from pathlib import Path

import pytest
import yaml

from demur.service.app import create_app
from demur.service.connection.protocol import MAX_HEAD_BYTES
from demur.service.process.server import KEEP_ALIVE_SECONDS
from demur.service.settings import PREFIX, Settings
from tests.support.deployment import (
    COMPOSE,
    COMPOSE_FILE,
    DASHBOARDS,
    DOCKERFILE,
    FOR_MODELS,
    GRAFANA,
    NGINX,
    NGINX_TEXT,
    PROMETHEUS,
    ROOT,
    SCRAPES,
    SETTINGS,
    environment,
    memory_of_requests,
    values,
    variables,
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
    assert environment("service")["DEMUR_BUNDLE"] in _mounts("demur")


def test_the_service_is_confined() -> None:
    service = COMPOSE["services"]["demur"]
    assert service["build"] == {"context": ".", "target": "service"}
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_no_service_has_rights_or_all_the_memory(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_each_service_comes_back(name: str) -> None:
    assert COMPOSE["services"][name]["restart"] == "unless-stopped"


def test_the_service_s_memory_fits_its_processors() -> None:
    service = COMPOSE["services"]["demur"]
    gigabytes = re.fullmatch(r"(\d+)g", service["mem_limit"])
    assert gigabytes is not None
    assert memory_of_requests(service["cpus"]) + FOR_MODELS <= int(gigabytes[1]) * 2**30


def test_the_service_may_finish_before_it_is_killed() -> None:
    grace = re.fullmatch(r"(\d+)s", COMPOSE["services"]["demur"]["stop_grace_period"])
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


def test_only_the_proxy_leads_to_the_service() -> None:
    services, networks = COMPOSE["services"], COMPOSE["networks"]
    assert "ports" not in services["demur"]
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", []))
    assert {name for name, service in services.items() if "proxied" in service["networks"]} == {"proxy", "demur"}
    assert all(networks[name]["internal"] for name in services["demur"]["networks"])
    (pool,) = networks["proxied"]["ipam"]["config"]
    subnet = ipaddress.ip_network(pool["subnet"])
    for name in ("proxy", "demur"):
        assert ipaddress.ip_address(services[name]["networks"]["proxied"]["ipv4_address"]) in subnet
    assert services["demur"]["environment"]["DEMUR_TRUSTED_PROXIES"] == f"{subnet}"


def test_the_proxy_runs_our_configuration_without_rights() -> None:
    proxy = COMPOSE["services"]["proxy"]
    file = Path(proxy["command"][proxy["command"].index("-c") + 1])
    assert ROOT / _mounts("proxy")[f"{file.parent}"][0] / file.name == NGINX
    assert "/tmp" in _mounts("proxy")
    assert set(re.findall(r"(?<!\S)/tmp/|/dev/std\w+", NGINX_TEXT)) == {"/tmp/", "/dev/stderr", "/dev/stdout"}
    assert f"listen {proxy['ports'][0].split(':')[-1]} " in NGINX_TEXT
    assert f"server demur:{environment('service')['DEMUR_PORT']} " in NGINX_TEXT
    assert proxy["read_only"] is True


def test_the_proxy_allows_what_the_service_allows() -> None:
    def number(directive: str) -> int:
        match = re.search(rf"^ *{directive} (\d+)", NGINX_TEXT, re.MULTILINE)
        assert match is not None
        return int(match[1])

    assert number("client_max_body_size") * 2**20 == Settings.model_fields["max_body_bytes"].default
    assert number("large_client_header_buffers") * 8 * 2**10 <= MAX_HEAD_BYTES
    assert number("proxy_read_timeout") > Settings.model_fields["request_timeout_seconds"].default
    upstream = NGINX_TEXT[NGINX_TEXT.index("upstream") :]
    match = re.search(r"keepalive_timeout (\d+)s", upstream)
    assert match is not None
    assert int(match[1]) < KEEP_ALIVE_SECONDS


def test_services_find_each_other() -> None:
    port = environment("service")["DEMUR_PORT"]
    assert values("service", "EXPOSE") == [port]
    for scrape in SCRAPES["scrape_configs"]:
        assert scrape["metrics_path"] in set(create_app([], Settings()).openapi()["paths"])
        assert scrape["static_configs"] == [{"targets": [f"demur:{port}"]}]
    assert {"demur", "prometheus"} <= {
        name for name, service in COMPOSE["services"].items() if "watched" in service["networks"]
    }
    published = {name: one["ports"][0].split(":") for name, one in COMPOSE["services"].items() if "ports" in one}
    assert published["proxy"][:2] == ["127.0.0.1", port]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == f"http://prometheus:{published['prometheus'][-1]}"
    assert {source["type"]} == {variables(one)["datasource"]["query"] for one in DASHBOARDS.values()}
    assert source["jsonData"]["timeInterval"] == SCRAPES["global"]["scrape_interval"]


def test_files_lie_where_prometheus_and_grafana_look() -> None:
    assert _mounts("prometheus")["/etc/prometheus"][0] == "./deploy/prometheus"
    assert all((PROMETHEUS / name).is_file() for name in SCRAPES["rule_files"])
    mounts = _mounts("grafana")
    for kind in ("datasources", "dashboards"):
        assert mounts[f"/etc/grafana/provisioning/{kind}"][0] == f"./deploy/grafana/provisioning/{kind}"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/demur.yml").read_text())["providers"]
    folder = provider["options"]["path"]
    assert mounts[folder][0] == "./deploy/grafana/dashboards"
    home = Path(COMPOSE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert home.parent == Path(folder)
    assert (GRAFANA / "dashboards" / home.name).is_file()
