"""Where OpenTelemetry's own variables send traces."""

from collections.abc import Mapping
from urllib.parse import urlsplit

EXPORTER, DISABLED = "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"
PROTOCOL, ENDPOINT = "PROTOCOL", "ENDPOINT"
EXPECTED, LOCAL = "http/protobuf", "http://localhost:4318"


def trace_destination(environment: Mapping[str, str]) -> str | None:
    """The collector's address, without name and password; None where the variables turn traces off.

    Raises `ValueError` for a protocol that is not spoken here, and for an address without `http://` or `https://`:
    without this check, the service would start, and every trace be lost.
    """
    exporter = environment.get(EXPORTER, "").strip().lower()
    if environment.get(DISABLED, "").strip().lower() == "true" or exporter == "none":
        return None
    if exporter not in ("", "otlp"):
        raise ValueError(f"{EXPORTER}: found {exporter!r:.100}, expected otlp, or none for no traces")
    name, protocol = _variable(environment, PROTOCOL)
    if protocol not in ("", EXPECTED):
        expected = f"{EXPECTED}, which collectors take at a port of its own, usually 4318"
        raise ValueError(f"{name}: found {protocol!r:.100}, expected {expected}")
    name, address = _variable(environment, ENDPOINT)
    try:
        parts = urlsplit(address or LOCAL)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or parts.scheme not in ("http", "https"):
        raise ValueError(f"{name}: found {address!r:.100}, expected the address of a collector, such as {LOCAL}")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port is None else f":{port}")


def _variable(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable that counts, and its value: one for traces alone wins."""
    names = f"OTEL_EXPORTER_OTLP_TRACES_{name}", f"OTEL_EXPORTER_OTLP_{name}"
    return next(((full, value) for full in names if (value := environment.get(full, "").strip())), (names[1], ""))
