"""The options of `score` and `evaluate` that a service has as settings: the same ones give the same numbers."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from probity.service.codec.answers import Coverage
from probity.service.inference.deciding import Policy
from probity.service.inference.predictor import Predictor
from probity.service.models.cpu_share import useful_threads
from probity.service.settings import Settings

DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Each field is an option, and its annotation says what `--help` shows."""

    false_reject_rate: Annotated[
        float | None,
        typer.Option(
            help="Share of inputs like the held-out ones that may be rejected.",
            show_default="the bundle's",
        ),
    ] = DEFAULTS["false_reject_rate"]
    by_class: Annotated[bool, typer.Option("--by-class", help="The rate holds within each predicted class.")] = (
        DEFAULTS["reject_by_class"]
    )
    accepted_accuracy: Annotated[
        float | None,
        typer.Option(
            help="Share of the accepted predictions that must be right, in place of a rate.",
            show_default=False,
        ),
    ] = DEFAULTS["accepted_accuracy"]
    accepted_confidence: Annotated[float, typer.Option(help="Confidence with which it is certified.")] = DEFAULTS[
        "accepted_confidence"
    ]
    interval_level: Annotated[
        float,
        typer.Option(help="Probability that sets and intervals hold the truth with."),
    ] = DEFAULTS["interval_level"]

    def policy(self) -> Policy:
        """What decides; raises `ValueError` for options that contradict each other."""
        return Policy(self.false_reject_rate, self.by_class, self.accepted_accuracy, self.accepted_confidence)

    def coverage(self, *, conformal: bool = True) -> Coverage:
        """Of sets and intervals; raises `ValueError` for a level that is none."""
        return Coverage(self.interval_level, conformal)

    def open(self, path: Path, threads: int | None = None) -> Predictor:
        """The bundle's predictor; raises `BundleError` for what the bundle cannot give, and `ValueError`."""
        useful = None if threads is None else useful_threads(threads)
        return Predictor.load(path, threads=useful, policy=self.policy())


def with_service_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `answers` of a command by one option for each field of `ServiceOptions`."""
    names = {field.name for field in fields(ServiceOptions)}

    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in names}
        command(**given, answers=ServiceOptions(**chosen))

    stated = inspect.signature(command, eval_str=True).parameters.values()
    own = [parameter for parameter in stated if parameter.name != "answers"]
    run.__signature__ = inspect.Signature([*own, *_options()])  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _options() -> list[inspect.Parameter]:
    hints, kind = get_type_hints(ServiceOptions, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in fields(ServiceOptions)
    ]
