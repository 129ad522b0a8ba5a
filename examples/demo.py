"""The whole path on one screen, with a real server on a real port.

python examples/demo.py --dataset digits
"""

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import numpy as np
import typer
from PIL import Image

from demur.card import console, print_card
from demur.cli import explained_errors, fail
from demur.evaluation_table import print_evaluation
from demur.offline.recipes.load import load_recipe
from demur.offline.recipes.run import evaluate_recipe, fit_recipe
from demur.offline.runtime.arrays import Array
from demur.option_types import whole_number
from demur.service.format.text import suggestion
from demur.service.inference.predictor import Predictor

START_SECONDS = 60


@dataclass(frozen=True)
class Dataset:
    """recipe: beside this file; thing, things: what an image shows, and many of it."""

    recipe: str
    thing: str
    things: str


DATASETS = {
    "digits": Dataset("digits.py", "digit", "scanned digits"),
    "mnist": Dataset("mnist.py", "digit", "handwritten digits"),
    "fashion-mnist": Dataset("fashion_mnist.py", "article of clothing", "articles of clothing"),
}


def demo(
    dataset: Annotated[str, typer.Option(help="digits, or mnist or fashion-mnist, which are downloaded.")] = "digits",
    out: Annotated[Path | None, typer.Option(help="Where to write the bundle.", show_default="bundles/DATASET")] = None,
    port: Annotated[
        int, typer.Option(parser=whole_number(0, 65535), metavar="INTEGER", help="Port to serve on.")
    ] = 8000,
    keep: Annotated[
        bool | None, typer.Option(help="Keep serving until Ctrl-C.", show_default="when run in a terminal")
    ] = None,
) -> None:
    """Train an image classifier, fit its bundle, serve it, and ask it about an image and about something else."""
    if dataset not in DATASETS:
        fail(f"found {dataset!r:.60}{suggestion(dataset, DATASETS)}, expected one of {', '.join(DATASETS)}")
    with explained_errors(hint=False):
        _run(DATASETS[dataset], out or Path("bundles") / dataset, port, keep)


def _run(shown: Dataset, out: Path, port: int, keep: bool | None) -> None:
    recipe = Path(__file__).with_name(shown.recipe)
    _check_port_free(port)
    screen = console()
    screen.rule(f"1. Train a small network on {shown.things} and fit its bundle")
    fit_recipe(recipe, out, {})
    print_card(out, warned=True)
    screen.rule("2. Evaluate on test images, and on inverted images and noise")
    print_evaluation(evaluate_recipe(Predictor.load(out), recipe))
    screen.rule(f"3. Serve it: demur serve {out} --port {port}")
    with _server(out, port):
        image, truth = _first_image(recipe)
        _ask(f"An ordinary {shown.thing}", image, port, f"its class is {truth}")
        _ask(f"Something that is no {shown.thing}", _checkerboard(len(image)), port, "a checkerboard")
        screen.print(f"Try it in a browser: http://127.0.0.1:{port}/   documentation: http://127.0.0.1:{port}/docs")
        if keep if keep is not None else sys.stdout.isatty():
            screen.print("Serving until Ctrl-C ...")
            _wait_for_interrupt()
        else:
            screen.print(f"The server was stopped. Start it again: {_command()} serve {out} --port {port}")


def _command() -> Path:
    """The `demur` that belongs to this interpreter, as it can be typed here."""
    command = Path(sys.executable).parent / "demur"
    return command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command


def _check_port_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            fail(f"port {port}: {error.strerror}; choose another: make demo PORT={port + 1}")


@contextmanager
def _server(bundle: Path, port: int) -> Iterator[None]:
    """`python -m demur.service` in a process of its own, answering when the block starts and stopped when it ends."""
    command = [sys.executable, "-m", "demur.service", str(bundle), "--port", str(port)]
    environment = {**os.environ, "DEMUR_LOG_LEVEL": "warning"}
    with subprocess.Popen(command, env=environment) as process:
        try:
            _wait_until_ready(process, port)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise OSError(f"the service stopped with exit code {process.returncode} before it was ready")
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health/ready", trust_env=False).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise OSError(f"the service was not ready within {START_SECONDS} seconds")


def _first_image(path: Path) -> tuple[Array, str]:
    """Of the test data, and the name of its class."""
    recipe = load_recipe(path)
    inputs, labels = recipe.data("test_data")
    names = recipe.class_names
    assert names is not None
    return np.rint(inputs[0, 0].numpy() * 255).astype(np.uint8), names[int(labels[0])]


def _checkerboard(size: int) -> Array:
    """Fields of an eighth of the image."""
    board: Array = (np.indices((size, size)) // max(1, size // 8)).sum(axis=0) % 2 * 255
    return board.astype(np.uint8)


def _ask(title: str, pixels: Array, port: int, truth: str) -> None:
    """Show the picture, the request that anyone can repeat, and the answer."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    body = json.dumps({"images": [base64.b64encode(stream.getvalue()).decode()]})
    url = f"http://127.0.0.1:{port}/predict"
    answer = httpx.post(
        f"{url}?detail=full", content=body, headers={"content-type": "application/json"}, trust_env=False
    )
    answer.raise_for_status()
    first = answer.json()["predictions"][0]
    uncertainty = first["uncertainty"]
    verdict = "[bold red]REJECTED[/]" if first["rejected"] else "[bold green]accepted[/]"
    screen = console()
    screen.print(f"\n[bold]{title}[/] ({truth}): {verdict}")
    screen.print(_picture(pixels), highlight=False)
    plain = max(first["map_probabilities"].values())
    screen.print(
        f"label {first['label']}, probability {first['probability']:.3f} (plain network: {first['map_label']}, "
        f"{plain:.3f}); entropy {uncertainty['total']:.3f} nats, of which epistemic {uncertainty['epistemic']:.3f}; "
        f"p-value {first['p_value']:.4f}"
    )
    if first["reason"]:
        screen.print(first["reason"])
    print(f"curl -s {url} -H 'Content-Type: application/json' -d '{body}'\n", flush=True)


def _picture(pixels: Array) -> str:
    shades = " .:-=+*#%@"
    return "\n".join("    " + "".join(2 * shades[int(v) * 9 // 255] for v in row) for row in pixels)


def _wait_for_interrupt() -> None:
    try:
        signal.pause()
    except KeyboardInterrupt:
        console().print("Stopped.")


if __name__ == "__main__":
    typer.run(demo)
