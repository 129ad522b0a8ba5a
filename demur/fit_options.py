"""The options of `demur fit`, made from the fields of `FitConfig`: one of each, with its description as help."""

import importlib.util
import inspect
import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from pydantic.fields import FieldInfo

from demur.service.format.json_names import unique

F = TypeVar("F", bound=Callable[..., None])
ONE, MANY = str | None, list[str] | None
MODULES, LAYERS, STRATEGY_OPTIONS = "within", "added_weights", "selection_options"
SWITCH = {"true": True, "false": False}


def with_config_options(command: F) -> F:
    """Replace the `**given` of a command by an option for each field; all are text or None, see `parsed`.

    Where the offline job is not installed, as in the service's image, there are none.
    """
    stated = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    command.__signature__ = inspect.Signature([*stated, *_options()])  # type: ignore[attr-defined]
    return command


def _options() -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                MANY if name in (MODULES, LAYERS) else ONE,
                typer.Option(help=_help(name, field.description or ""), show_default=_shown(field.default)),
            ],
        )
        for name, field in _fields().items()
    ]


def _fields() -> dict[str, FieldInfo]:
    if importlib.util.find_spec("demur.offline") is None:
        return {}
    from demur.offline.config import FitConfig

    return FitConfig.model_fields


def _help(name: str, description: str) -> str:
    extra = {
        MODULES: " May be given several times.",
        LAYERS: " May be given several times, a path each.",
        STRATEGY_OPTIONS: " A JSON object.",
    }
    return description.replace("`", "'") + extra.get(name, "")


def _shown(default: object) -> str | bool:
    return str(default) if isinstance(default, str | int | float) else False


def parsed(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as values for `FitConfig`, which checks them.

    Raises `ValueError` where `selection_options` is not JSON.
    """
    fields = _fields()
    return {name: _value(name, text, fields[name]) for name, text in given.items() if text is not None and text != []}


def _value(name: str, text: str | list[str], field: FieldInfo) -> Any:
    if isinstance(text, list):
        one = SWITCH.get(text[0].lower()) if name == LAYERS and len(text) == 1 else None
        return tuple(text) if one is None else one
    if name == STRATEGY_OPTIONS:
        return _json(text)
    return text if field.annotation is str else number_or_word(text)


def number_or_word(text: str) -> int | float | str:
    """ "1000" is a count, "0.1" a share, anything else a word."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique)
    except ValueError as error:
        raise ValueError(
            f"selection_options: found {text!r:.100}, expected a JSON object, such as "
            "'{\"live_only\": true}' in quotes"
        ) from error
