"""`python -m demur.service.keys`: API keys, keys that sign bundles, and signing. Nothing here needs torch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from .bundle import BundleError
from .security.api_keys import KeyFileError, new_key
from .security.signing import SigningKeyError, load_signing_key, new_signing_key, sign_bundle

DEFAULT_NAME = "signing-key.pem"
app = typer.Typer(name="keys", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Show an error that the user can correct as one line."""
    try:
        yield
    except (KeyFileError, SigningKeyError, BundleError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


@app.callback()
def keys() -> None:
    """Make API keys, make keys that sign bundles, and sign."""


@app.command()
def new(name: Annotated[str, typer.Argument(help="Whose key it will be; letters, digits and ._-")]) -> None:
    """Make an API key: print it, once, and the line for the file that DEMUR_API_KEYS_FILE names."""
    with _explained():
        key, entry = new_key(name)
    typer.echo("The key, for the client; it is not shown again:", err=True)
    typer.echo(key)
    typer.echo("Its line for the file that DEMUR_API_KEYS_FILE names:", err=True)
    typer.echo(entry.line)


@app.command()
def signing(
    file: Annotated[Path, typer.Argument(help=f"New file for the private key, or a folder for {DEFAULT_NAME}.")],
) -> None:
    """Make a key that signs bundles: the private one in FILE, the public one in FILE.pub."""
    with _explained():
        private = file / DEFAULT_NAME if file.is_dir() else file
        public, name = new_signing_key(private)
    typer.echo(f"key {name}")
    typer.echo(f"private, to sign with (keep it): {private}")
    typer.echo(f"public, for the file that DEMUR_TRUSTED_KEYS names: {public}")


@app.command()
def sign(
    bundle: Annotated[Path, typer.Argument(help="Folder of a bundle.")],
    key: Annotated[Path, typer.Option(help="File of the private key.")],
) -> None:
    """Sign a bundle, so that services with DEMUR_TRUSTED_KEYS load it."""
    with _explained():
        signature = sign_bundle(bundle, load_signing_key(key))
    typer.echo(f"{bundle}: signed with the key {signature.key_id}")


if __name__ == "__main__":
    app()
