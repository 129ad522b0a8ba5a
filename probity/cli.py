"""Commands of `probity`. Those that need torch import it when they run, so `probity serve` never does."""

import importlib.util
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from probity.card import print_card, print_lines, print_metrics
from service.__main__ import serve
from service.bundle import BundleError, read_bundle
from service.keys import app as keys
from service.keys import sign

app = typer.Typer(
    name="probity",
    help="A model server that says how sure it is, and says no when it should.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve)
app.command("sign")(sign)
app.add_typer(keys, name="keys")
RecipeArgument = Annotated[Path, typer.Argument(help="A Python file with model(), train_data(), calibration_data().")]
BundleArgument = Annotated[Path, typer.Argument(help="Folder of a bundle.")]


DebugOption = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


@contextmanager
def explained_errors(debug: bool = False) -> Iterator[None]:
    """What a user can mend is printed in a few lines; anything else is a bug and keeps its traceback.

    An error inside the user's own code is told with its file, line and source line. `debug`: every error keeps its
    traceback.
    """
    try:
        yield
    except Exception as error:
        message = None if debug else _explained(error)
        if message is None:
            raise
        fail(message)


def _explained(error: Exception) -> str | None:
    """What to print; None for a bug of ours."""
    from offline.recipes.user_errors import user_error, user_frames, user_frames_behind

    if isinstance(error, ValidationError):
        return "\n".join(filter(None, [_one_line(error), user_frames(error)]))
    if (in_recipe := user_error(error)) is not None:
        return f"{in_recipe}\n(--debug shows the whole traceback)"
    if type(error) is RuntimeError or not isinstance(error, ValueError | TypeError | OSError | RuntimeError):
        return None  # ours are named: ExportError, VerificationError
    return "\n".join(filter(None, [str(error), user_frames_behind(error)]))


def _one_line(error: ValidationError) -> str:
    """The first wrong value, and everything that it could have been."""
    first, *others = error.errors()
    field = str(first["loc"][0]) if first["loc"] else "arguments"
    said = dict.fromkeys([first["msg"], *(other["msg"] for other in others if other["loc"][:1] == first["loc"][:1])])
    return f"{field}: found {first['input']!r:.100}; {', or: '.join(said)}"


def fail(message: str) -> None:
    """Print the message and stop with exit code 2."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)


def need_torch() -> None:
    """A clear word where the offline job is not installed."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "offline")):
        fail("this command needs the offline job: pip install 'probity-serve[offline]'")


@app.command()
def fit(
    recipe: RecipeArgument,
    out: Annotated[Path, typer.Option(help="Where to write the bundle; an existing bundle is replaced.")],
    subnetwork_size: Annotated[
        str | None, typer.Option(help="Weights to choose: a number, or a share such as 0.1.")
    ] = None,
    selection: Annotated[str | None, typer.Option(help="Strategy that chooses them.")] = None,
    within: Annotated[
        list[str] | None, typer.Option(help="Choose only inside this module; may be given several times.")
    ] = None,
    kinds: Annotated[str | None, typer.Option(help="'all', or 'weights': without biases and normalisations.")] = None,
    prior_precision: Annotated[str | None, typer.Option(help="A number, 'budget', 'gridsearch' or 'marglik'.")] = None,
    uncertainty_budget: Annotated[
        float | None, typer.Option(help="Nats of held-out log-likelihood that uncertainty may cost ('budget').")
    ] = None,
    posterior: Annotated[str | None, typer.Option(help="'cholesky' or 'low-rank'.")] = None,
    false_reject_rate: Annotated[float | None, typer.Option(help="Share of good inputs that may be rejected.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:n.")] = None,
    memory_budget: Annotated[
        str | None, typer.Option(help="Most memory to take, such as 2GiB.", show_default="60 % of what is free")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model.")] = None,
    version: Annotated[str | None, typer.Option(help="Version of the model.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would take: memory and time.")] = False,
    debug: DebugOption = False,
) -> None:
    """Fit a bundle: choose weights, compute their posterior, calibrate, export, verify.

    A fit that was killed goes on where it was when it is started again. Under torchrun the data are shared out.
    """
    given = {
        "subnetwork_size": number_or_word(subnetwork_size),
        "selection": selection,
        "within": tuple(within) if within else None,
        "kinds": kinds,
        "prior_precision": number_or_word(prior_precision),
        "uncertainty_budget": uncertainty_budget,
        "posterior": posterior,
        "false_reject_rate": false_reject_rate,
        "seed": seed,
        "device": device,
        "memory_budget": memory_budget,
        "name": name,
        "version": version,
    }
    need_torch()
    from offline.recipes.run import dry_run_recipe, fit_recipe

    stated = {key: value for key, value in given.items() if value is not None}
    with explained_errors(debug):
        if dry_run:
            print_lines(dry_run_recipe(recipe, stated))
        elif fit_recipe(recipe, out, stated):
            print_card(out)
            print_lines(["", f"Report: {out / 'report.html'}", f"Serve it: probity serve {shlex.quote(str(out))}"])


def number_or_word(text: str | None) -> int | float | str | None:
    """ "1000" is a count, "0.1" a share, anything else a word."""
    for kind in (int, float):
        try:
            return kind(text) if text is not None else None
        except ValueError:
            continue
    return text


@app.command()
def evaluate(bundle: BundleArgument, recipe: RecipeArgument, debug: DebugOption = False) -> None:
    """Measure a bundle on the recipe's test_data() and, if it has one, ood_data()."""
    need_torch()
    from offline.recipes.run import evaluate_recipe

    with explained_errors(debug):
        print_metrics(evaluate_recipe(bundle, recipe))


@app.command()
def inspect(bundle: BundleArgument) -> None:
    """Check a bundle and show its card."""
    try:
        read_bundle(bundle)
    except BundleError as error:
        fail(str(error))
    print_card(bundle)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the bundle.")] = Path("bundles/digits"),
    port: Annotated[int, typer.Option(help="Port to serve on.")] = 8000,
    keep: Annotated[
        bool | None, typer.Option(help="Keep serving until Ctrl-C.", show_default="when run in a terminal")
    ] = None,
) -> None:
    """Train a digit classifier, fit its bundle, serve it, and ask it about a digit and about something else."""
    need_torch()
    from probity.demo import run_demo

    with explained_errors():
        run_demo(out, port, keep)
