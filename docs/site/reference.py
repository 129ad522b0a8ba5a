"""Pages made from the code: Python, the command line, HTTP and the metrics."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

import demur
import demur.mlflow
from demur.cli import app as commands
from demur.service.app import create_app
from demur.service.inference.predictor import Predictor
from demur.service.monitoring.metrics import Metrics
from demur.service.settings import Settings


def pages(bundle: Path) -> dict[str, str]:
    """Markdown by the name of the page. bundle: any, for an application whose routes are described."""
    return {"python": python(), "command_line": command_line(), "http": http(bundle), "metrics": metrics()}


def python() -> str:
    """What `from demur import ...` gives, and `demur.mlflow`, by autodoc."""
    parts = ["# Python\n\nEverything that `from demur import ...` gives, and `demur.mlflow`.\n"]
    for name in demur.__all__:
        if name == "__version__":
            continue
        found = getattr(demur, name)
        kind = "autofunction" if inspect.isfunction(found) else "autoclass"
        options = "" if kind == "autofunction" or issubclass(found, BaseModel) else "   :members:\n"
        parts.append(f"## {name}\n\n```{{eval-rst}}\n.. {kind}:: demur.{name}\n{options}```\n")
    parts += [
        f"## mlflow.{name}\n\n```{{eval-rst}}\n.. autofunction:: demur.mlflow.{name}\n```\n"
        for name in demur.mlflow.__all__
    ]
    return "\n".join(parts)


def command_line() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(commands)
    return "# Command line\n\n" + "\n".join(_commands("demur", group))


def _commands(name: str, command: Any) -> Iterator[str]:
    nested = getattr(command, "commands", {})
    if not nested:
        yield f"## `{name}`\n\n{inspect.cleandoc(command.help or '')}\n"
        rows = [_parameter(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        if rows:
            yield "| argument or option | default | what it does |\n| --- | --- | --- |\n" + "".join(rows)
    for part, one in sorted(nested.items()):
        if not one.hidden:
            yield from _commands(f"{name} {part}", one)


def _parameter(parameter: Any) -> str:
    argument = parameter.param_type_name == "argument"
    names = parameter.name.upper() if argument else ", ".join([*parameter.opts, *parameter.secondary_opts])
    usual = parameter.default
    shown = "" if usual is None or usual in ((), [], False) or callable(usual) else f"`{usual}`"
    return f"| `{names}` | {'required' if parameter.required else shown} | {_cell(parameter.help or '')} |\n"


def http(bundle: Path) -> str:
    """Every operation of the OpenAPI document."""
    document = create_app(Predictor.load(bundle), Settings()).openapi()
    parts = ["# HTTP\n\nAs `GET /openapi.json` describes it, and `GET /docs` shows it for trying.\n"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"## `{method.upper()} {path}`\n\n{operation.get('description', operation['summary'])}\n")
            if given := operation.get("parameters"):
                rows = [f"| `{one['name']}` | {one['in']} | {_described(one)} |\n" for one in given]
                parts.append("| parameter | in | what it does |\n| --- | --- | --- |\n" + "".join(rows))
            answers = operation["responses"].items()
            rows = [f"| {status} | {_cell(one['description'])} |\n" for status, one in answers]
            parts.append("| status | when |\n| --- | --- |\n" + "".join(rows))
    return "\n".join(parts)


def _described(parameter: dict[str, Any]) -> str:
    return _cell(parameter.get("description") or parameter["schema"].get("description", ""))


def metrics() -> str:
    """Every family of metrics."""
    registry = CollectorRegistry()
    Metrics(registry)
    rows = [
        f"| `{family.name}` | {family.type} | {_cell(family.documentation)} |\n"
        for family in sorted(registry.collect(), key=lambda one: one.name)
    ]
    head = "| metric | type | what it counts |\n| --- | --- | --- |\n"
    return "# Metrics\n\nOf counters, `_total` follows the name.\n\n" + head + "".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def write(folder: Path, bundle: Path) -> None:
    """Write the pages into a new folder."""
    folder.mkdir()
    for name, text in pages(bundle).items():
        (folder / f"{name}.md").write_text(text)
