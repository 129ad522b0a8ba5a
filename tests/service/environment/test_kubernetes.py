"""service/environment/kubernetes.py: variables that Kubernetes sets in every pod are not mistakes of the operator."""

import pytest

from demur.service.settings import Settings, UnknownSettingError, load_settings
from tests.support.bundles import Synthetic
from tests.support.server import running


def service_links(
    name: str, address: str = "10.96.0.7", port: int = 8000, *, port_name: str = "HTTP"
) -> dict[str, str]:
    """As the kubelet makes them for a Service with one named port."""
    host = f"[{address}]" if ":" in address else address
    url = f"tcp://{host}:{port}"
    return {
        f"{name}_SERVICE_HOST": address,
        f"{name}_SERVICE_PORT": f"{port}",
        f"{name}_SERVICE_PORT_HTTP": f"{port}",
        f"{name}_PORT": url,
        f"{name}_PORT_{port}_TCP": url,
        f"{name}_PORT_{port}_TCP_PROTO": "tcp",
        f"{name}_PORT_{port}_TCP_PORT": f"{port}",
        f"{name}_PORT_{port}_TCP_ADDR": address,
    }


def set_all(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "links",
    [
        service_links("DEMUR_ANYTHING"),
        service_links("DEMUR_MODELS"),  # a Service named like a setting
        service_links("DEMUR_V2", "fd00:10:96::7"),
        {
            name.replace("TCP", "UDP"): value.replace("tcp", "udp")
            for name, value in service_links("DEMUR_A_B_C").items()
        },
    ],
    ids=["one", "named like a setting", "IPv6", "UDP"],
)
def test_variables_of_another_service_are_left_alone(links: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, links)
    assert load_settings() == Settings()


def test_a_service_of_our_own_name_sets_no_port(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_all(monkeypatch, service_links("DEMUR"))
    assert load_settings().port == Settings.model_fields["port"].default
    assert load_settings(port=9000).port == 9000
    assert "DEMUR_PORT: ignored tcp://10.96.0.7:8000" in caplog.text
    assert "enableServiceLinks: false" in caplog.text


def test_the_service_starts_beside_services_of_such_names(classification: Synthetic) -> None:
    links = service_links("DEMUR_ANYTHING") | service_links("DEMUR")
    with running(classification.path, **links) as server:
        assert server.request("GET", "/health/ready")[0] == 200
        assert any("DEMUR_PORT: ignored" in line for line in server.lines)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEMUR_SERVICE_PORT", "9000"),  # without the address beside it, a setting that does not exist
        ("DEMUR_SERVICE_HOST", "localhost"),
        ("DEMUR_METRICS_PORT", "9000"),
        ("DEMUR_METRICS_PORT", "tcp://localhost:9000"),
        ("DEMUR_METRICS_PORT", "tcp://999.1.1.1:9000"),
        ("DEMUR_PORT_HTTP", "tcp://10.0.0.1:8000"),
        ("DEMUR_X_PORT_80_TCP_ADDR", "somewhere"),
        ("DEMUR_HOST_", "10.0.0.1"),
    ],
)
def test_what_kubernetes_would_not_make_stays_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UnknownSettingError, match=f"^{name}: unknown setting"):
        load_settings()
