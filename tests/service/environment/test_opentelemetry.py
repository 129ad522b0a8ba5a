"""service/environment/opentelemetry: where traces go, and what would lose them all."""

import pytest

from demur.service.environment.opentelemetry import trace_destination


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "http://localhost:4318"),
        ({"ENDPOINT": ""}, "http://localhost:4318"),
        ({"ENDPOINT": "http://collector:4318/"}, "http://collector:4318"),
        ({"ENDPOINT": "https://me:secret@collector.example/otlp?key=1"}, "https://collector.example"),
        ({"ENDPOINT": "http://[::1]:4318"}, "http://[::1]:4318"),
        ({"ENDPOINT": "http://a:1", "TRACES_ENDPOINT": "http://b:2/v1/traces"}, "http://b:2"),
        ({"PROTOCOL": "grpc", "TRACES_PROTOCOL": "http/protobuf"}, "http://localhost:4318"),
    ],
)
def test_the_collector_s_address_is_shown_without_secrets(variables: dict[str, str], expected: str) -> None:
    assert trace_destination({f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()}) == expected


@pytest.mark.parametrize("variables", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_variables_can_turn_traces_off(variables: dict[str, str]) -> None:
    assert trace_destination(variables) is None
    assert trace_destination(dict.fromkeys(variables, "")) == "http://localhost:4318"


def test_another_exporter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^OTEL_TRACES_EXPORTER: found 'console', expected otlp"):
        trace_destination({"OTEL_TRACES_EXPORTER": "console"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PROTOCOL", "grpc"),
        ("TRACES_PROTOCOL", "http/json"),
        ("ENDPOINT", "collector:4318"),
        ("ENDPOINT", "collector"),
        ("ENDPOINT", "grpc://collector:4317"),
        ("ENDPOINT", "http://"),
        ("ENDPOINT", "http://collector:port"),
        ("TRACES_ENDPOINT", "http://[::1"),
    ],
)
def test_what_cannot_work_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=rf"^OTEL_EXPORTER_OTLP_{name}: found .*, expected "):
        trace_destination({f"OTEL_EXPORTER_OTLP_{name}": value})
