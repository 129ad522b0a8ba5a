"""Check that the installed uvicorn has what the service overrides; much of that is undocumented and may disappear."""

import importlib.metadata

from uvicorn import Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# The tested minor versions, as in pyproject.toml.
REQUIREMENT = "uvicorn>=0.53,<0.55"
OVERRIDDEN: dict[type, tuple[str, ...]] = {
    Server: ("run", "serve", "startup", "on_tick", "shutdown", "capture_signals", "handle_exit"),
    HttpToolsProtocol: (
        "connection_made",
        "connection_lost",
        "data_received",
        "shutdown",
        "on_message_begin",
        "on_url",
        "on_header",
        "on_headers_complete",
        "on_body",
        "on_message_complete",
        "on_response_complete",
        "_start_asgi_task",
        "timeout_keep_alive_handler",
    ),
}
# Called, and not overridden.
CALLED: dict[type, tuple[str, ...]] = {
    HttpToolsProtocol: ("_unset_keepalive_if_required",),
}


class UnsupportedUvicornError(RuntimeError):
    """The installed uvicorn lacks a method without which limits on requests would silently not hold."""


def check_uvicorn() -> None:
    """Raises `UnsupportedUvicornError`, which names what is missing and what to install."""
    missing = [
        f"{owner.__name__}.{name}"
        for table in (OVERRIDDEN, CALLED)
        for owner, names in table.items()
        for name in names
        if not hasattr(owner, name)
    ]
    if missing:
        found = importlib.metadata.version("uvicorn")
        raise UnsupportedUvicornError(
            f"uvicorn: found version {found}, which lacks {', '.join(missing)}; expected {REQUIREMENT}: "
            f"pip install '{REQUIREMENT}'"
        )
