"""`python -m service BUNDLE ...`: serve bundles."""

from pathlib import Path
from typing import Annotated, NoReturn

import threadpoolctl
import typer
import uvicorn
from pydantic import ValidationError

from service.app import create_app
from service.bundle import BundleError
from service.cpu import available_cpus
from service.loading import load_named
from service.server import Server
from service.settings import PREFIX, Settings, UnknownSettingError, load_settings


def serve(
    bundle: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of the bundles to serve; without any, PROBITY_BUNDLE.", show_default=False),
    ] = None,
    models: Annotated[
        Path | None, typer.Option(help="Folder whose subfolders are bundles; all of them are served.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.", show_default="8000")] = None,
) -> None:
    """Serve bundles over HTTP. Every other setting is an environment variable, see the README."""
    try:
        settings = load_settings(
            bundle=tuple(map(str, bundle)) if bundle else None, models=models, host=host, port=port
        )
        server = build_server(settings)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        _fail(f"{name} ({PREFIX}{name.upper()}): {first['msg']}, found {first['input']!r:.100}")
    except (BundleError, UnknownSettingError) as error:
        _fail(str(error))
    server.run()
    if not server.started:
        raise typer.Exit(3)


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


def build_server(settings: Settings) -> Server:
    """Load the bundles, fit the thread pools to the container's CPU share, and prepare the HTTP server."""
    threadpoolctl.threadpool_limits(settings.threads or available_cpus())
    config = uvicorn.Config(
        create_app(load_named(settings), settings),
        host=settings.host,
        port=settings.port,
        log_level=settings.log_level,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        server_header=False,
    )
    return Server(config, settings.drain_seconds)


def main() -> None:
    """Entry point of `python -m service`."""
    typer.run(serve)


if __name__ == "__main__":
    main()
