"""The options of `score` and `evaluate` that a service has as settings: the same ones give the same numbers."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.models.cpu_share import useful_threads

from .option_types import number


def with_policy_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `policy` of a command, a mapping of option to value, by one option for each field of
    `Policy`."""

    def run(**given: Any) -> None:
        policy = {name: given.pop(name) for name in Policy.model_fields}
        command(**given, policy=policy)

    stated = inspect.signature(command, eval_str=True).parameters.values()
    own = [parameter for parameter in stated if parameter.name != "policy"]
    options = [_option(name, field) for name, field in Policy.model_fields.items()]
    run.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    flag = f"--{name.replace('_', '-')}"
    kind = _without_bounds(field.annotation)
    parser = None if kind is bool else number
    option = typer.Option(flag, help=field.description, show_default=field.default is not None, parser=parser)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[kind, option]
    )


def _without_bounds(annotation: Any) -> Any:
    """The type; `Policy` checks what its values may be."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    return float | None if type(None) in get_args(annotation) else annotation


def open_predictor(path: Path, policy: dict[str, Any], threads: int | None = None) -> Predictor:
    """The bundle's predictor; raises `BundleError` for what the bundle cannot give, and `ValueError` for options that
    are wrong or contradict each other."""
    useful = None if threads is None else useful_threads(threads)
    return Predictor.load(path, threads=useful, policy=Policy(**policy))
