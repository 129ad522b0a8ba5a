"""`python -m demur.service BUNDLE ...`: serve bundles."""

import os

# FastAPI ends with a traceback where this names what is not installed; the service knows W3C's `traceparent` alone.
os.environ.pop("OTEL_PROPAGATORS", None)

from .process.startup_signals import StartupSignals

if __name__ == "__main__":
    StartupSignals()

import importlib.util
import logging.config
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from .app import VERSION
from .bundle import MANIFEST, BundleError
from .environment.cpu import available_cpus
from .environment.opentelemetry import trace_destination
from .feedback.receipts import SecretFileError, read_secrets
from .format.text import printable
from .format.validation import refused_value
from .models.elsewhere import fetch_bundles
from .models.folders import bundles_in
from .models.loading import load_named
from .monitoring.audit_file import AuditFileError, open_audit
from .monitoring.metrics import SHARED_FOLDER
from .process.forced_exit import ForcedExit
from .process.listening import too_few_files
from .process.logs import log_config
from .process.metrics_files import clear_metrics
from .process.server import build_server
from .process.supervisor import listener, supervise
from .process.uvicorn_support import UnsupportedUvicornError, check_uvicorn
from .process.worker import STARTUP_FAILURE
from .security.api_keys import KeyFileError, KeyRing
from .settings import PREFIX, Settings, UnknownSettingError, load_settings

MOST_WORKERS_PER_CPU = 8  # one is enough
log = logging.getLogger("demur")


def serve(
    bundle: Annotated[
        list[str] | None,
        typer.Argument(help="Folders or URIs of bundles to serve; without any, DEMUR_BUNDLE.", show_default=False),
    ] = None,
    models: Annotated[Path | None, typer.Option(help="Folder of bundles; every bundle in it is served.")] = None,
    model_dir: Annotated[
        Path | None,
        typer.Option(
            "--model-dir",
            "--model_dir",
            help="Folder of a bundle or of bundles, as KServe has it.",
            show_default=False,
        ),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option("--model-name", "--model_name", help="Name to serve the bundle under.", show_default="its own"),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    grpc_port: Annotated[
        str | None,
        typer.Option("--grpc-port", "--grpc_port", help="Port for gRPC too.", show_default="none", metavar="INTEGER"),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(
            "--port",
            "--http-port",
            "--http_port",
            help="Port to listen on.",
            show_default="8000",
            metavar="INTEGER",
        ),
    ] = None,
) -> None:
    """Serve bundles over HTTP. Every other setting is an environment variable: see docs/settings.md."""
    try:
        check_uvicorn()
        named: dict[str, Any] = {"bundle": tuple(bundle) if bundle else None, "models": models}
        if model_dir is not None:
            named = _found_in(model_dir, named)
        settings = load_settings(**named, model_name=model_name, host=host, port=port, grpc_port=grpc_port)
        _check_metrics_folder()
        _check_levels(settings)
        _check_address(settings)
        _check_grpc(settings)
        _check_traces(settings)
        _check_workers(settings)
        if (problem := too_few_files()) is not None:
            _fail(problem)
        if settings.uris:
            logging.config.dictConfig(log_config(settings))  # what is fetched is told as everything else
            fetch_bundles(settings)
        if given := os.environ.get(SHARED_FOLDER):
            clear_metrics(Path(given))
        run = _workers(settings) if settings.workers > 1 else _single(settings)
    except ValidationError as error:
        name, problem = refused_value(error)
        _fail(f"{name} ({PREFIX}{name.upper()}): {problem}" if name else problem)
    except (
        AuditFileError,
        BundleError,
        KeyFileError,
        SecretFileError,
        UnknownSettingError,
        UnsupportedUvicornError,
    ) as error:
        _fail(str(error))
    if status := run():
        raise typer.Exit(status)


def _found_in(folder: Path, named: dict[str, Any]) -> dict[str, Any]:
    """What `--model-dir` stands for: the bundle that the folder is, the only one in it, or all that are in it."""
    if any(named.values()):
        _fail("--model-dir: found bundles or --models too, expected one of them")
    inside = [] if (folder / MANIFEST).exists() or not folder.is_dir() else bundles_in(folder)
    if len(inside) > 1:
        return {"bundle": (), "models": folder}
    return {"bundle": (str(inside[0] if inside else folder),)}


def _single(settings: Settings) -> Callable[[], int]:
    server = build_server(settings, forced_exit=ForcedExit())
    _say_settings(settings)

    def run() -> int:
        _leave_signals_to_server()
        server.run()
        return 0 if server.started else STARTUP_FAILURE

    return run


def _workers(settings: Settings) -> Callable[[], int]:
    """Check bundles and keys first, so that an invalid one is a single line instead of one per worker."""
    load_named(settings)
    for file in (settings.api_keys_file, settings.feedback_keys_file):
        if file is not None:
            KeyRing(file)
    if settings.audit_file is not None:
        open_audit(settings.audit_file, settings.audit_bytes).close()
    if settings.feedback_secret_file is not None:
        read_secrets(settings.feedback_secret_file)
    logging.config.dictConfig(log_config(settings))
    _say_settings(settings)

    def run() -> int:
        _leave_signals_to_server()
        try:
            return supervise(settings)
        except OSError as error:
            typer.echo(f"error: {_cannot_listen(settings, error)}", err=True)
            return STARTUP_FAILURE

    return run


def _say_settings(settings: Settings) -> None:
    log.info("settings: %s", printable(settings.described()))
    if settings.traces:
        where = trace_destination(os.environ)
        log.info("traces go to %s", "nobody: OpenTelemetry's variables say so" if where is None else printable(where))


def _leave_signals_to_server() -> None:
    if (signals := StartupSignals.current()) is not None:
        signals.stop()


def _check_workers(settings: Settings) -> None:
    most = MOST_WORKERS_PER_CPU * available_cpus()
    if settings.workers > most:
        limit = f"{most}, {MOST_WORKERS_PER_CPU} for each processor"
        _fail(f"workers ({PREFIX}WORKERS): found {settings.workers}, expected at most {limit}")


def _check_address(settings: Settings) -> None:
    """Before bundles are loaded: whether anything else listens there."""
    try:
        with listener(settings):
            pass
    except OSError as error:
        typer.echo(f"error: {_cannot_listen(settings, error)}", err=True)
        raise typer.Exit(STARTUP_FAILURE) from None


def _check_grpc(settings: Settings) -> None:
    if settings.grpc_port is None:
        return
    if not all(importlib.util.find_spec(name) for name in ("grpc", "grpc_health")):
        packages = "grpcio grpcio-health-checking"
        _fail(f"grpc_port ({PREFIX}GRPC_PORT): gRPC needs packages of its own: pip install {packages}")
    if settings.grpc_port == 0 and settings.workers > 1:
        _fail(f"grpc_port ({PREFIX}GRPC_PORT): found 0, expected one port that all workers share")
    try:
        with listener(settings, settings.grpc_port):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        _fail(f"grpc_port ({PREFIX}GRPC_PORT): cannot serve on {settings.host}:{settings.grpc_port}: {reason}")


def _check_traces(settings: Settings) -> None:
    if not settings.traces:
        return
    if not (importlib.util.find_spec("opentelemetry") and importlib.util.find_spec("opentelemetry.sdk")):
        packages = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        _fail(f"traces ({PREFIX}TRACES): traces need packages of their own: pip install {packages}")
    try:
        if trace_destination(os.environ) is not None:
            from .monitoring.tracing import Tracing  # needs packages of its own

            Tracing.check(VERSION)
    except ValueError as error:
        _fail(f"traces ({PREFIX}TRACES): {error}")


def _cannot_listen(settings: Settings, error: OSError) -> str:
    address, reason = f"{settings.host}:{settings.port}", (error.strerror or str(error)).lower()
    return f"cannot serve on {address}: {reason}; give another --port ({PREFIX}PORT) or --host ({PREFIX}HOST)"


def _check_levels(settings: Settings) -> None:
    """`BundleError` for a folder of bundles where a bundle is expected, and the other way round."""
    if settings.models is not None and (settings.models / MANIFEST).exists():
        raise BundleError(settings.models, "is a bundle, expected a folder of bundles", "name it without --models")
    for folder in settings.bundles:
        if folder.is_dir() and not (folder / MANIFEST).exists() and (inside := bundles_in(folder)):
            problem = f"is no bundle, but holds {len(inside)}"
            raise BundleError(folder, problem, f"serve them all with --models {folder}, or name {inside[0]}")


def _check_metrics_folder() -> None:
    folder = os.environ.get(SHARED_FOLDER)
    if folder is not None and not (Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        _fail(f"{SHARED_FOLDER}: found {folder!r}, expected an existing folder that may be written to")


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


def main() -> None:
    """Entry point of `python -m demur.service`."""
    typer.run(serve)


if __name__ == "__main__":
    main()
