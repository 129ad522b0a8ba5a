"""Commands of `demur`. Those that need torch import it when they run, so `demur serve` never does."""

import importlib.metadata
import importlib.resources
import importlib.util
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pickle import PicklingError
from typing import Annotated, Any, NoReturn

import typer

from demur.service.__main__ import serve
from demur.service.bundle import BundleError, read_bundle
from demur.service.format.files import MANIFEST, check_new, check_writable, replace_file
from demur.service.format.text import suggestion
from demur.service.keys import app as keys
from demur.service.keys import sign
from demur.service.process.startup_signals import Terminated
from demur.service.remote.places import FORMS
from demur.service.remote.push import push

from .card import print_card, print_error, print_lines, print_standalone
from .evaluation_table import check_json, evaluation_json, print_evaluation, write_json
from .fit_options import parsed, with_config_options
from .option_types import share_of, version_share, whole_number
from .pin import pin_version
from .policy_options import open_predictor, with_policy_options
from .tag import tag_bundle
from .transfer import local_bundle, pull_bundle


def _show_version(asked: bool) -> None:
    if asked:
        print_lines([f"demur {importlib.metadata.version('demur')}"])
        raise typer.Exit


app = typer.Typer(
    name="demur",
    help="A model server that says how sure it is, and demurs when it should.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of every command."""


app.command("serve")(serve)
app.command("sign")(sign)
app.add_typer(keys, name="keys")
FIRST_BYTES = 4096  # of a file, which tell whether it is text
INPUTS = "An .npy, .csv, .parquet, .jsonl (as an audit trail) or .txt file, or a folder of images."
FORMS_SHOWN = ", ".join(FORMS).replace("[", "\\[")  # brackets are markup to rich
TEMPLATES = ("images", "series", "table", "text")
RecipeArgument = Annotated[Path, typer.Argument(help="A Python file with model(), train_data(), calibration_data().")]
SourceArgument = Annotated[
    Path, typer.Argument(help="A Python file with model(), train_data(), calibration_data(); or a network in ONNX.")
]


def _bundle(text: str) -> Path:
    """The folder of the bundle that is named, fetched where it is elsewhere."""
    try:
        return local_bundle(text)
    except BundleError as error:
        fail(str(error))


BundleArgument = Annotated[
    Path, typer.Argument(help="Folder of a bundle, or its URI.", parser=_bundle, metavar="BUNDLE")
]
BatchSizeOption = Annotated[
    int, typer.Option(parser=whole_number(1), metavar="INTEGER", help="How many inputs to read and predict at once.")
]
HeaderOption = Annotated[
    bool,
    typer.Option(
        "--header", help="The first line of a .csv file is a header, as where it has all feature names or no number."
    ),
]
NoHeaderOption = Annotated[bool, typer.Option("--no-header", help="The first line of a .csv file is data.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


@contextmanager
def explained_errors(debug: bool = False, hint: bool = True) -> Iterator[None]:
    """What a user can mend is printed in a few lines; anything else is a bug and keeps its traceback.

    An error inside the user's own code is told with its file, line and source line. `debug`: every error keeps its
    traceback; hint: say that there is such an option.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        message = None if debug else _explained(error, hint)
        if message is None:
            raise
        fail(message)


def _explained(error: BaseException, hint: bool) -> str | None:
    """What to print; None for a bug of ours."""
    from demur.offline.config import OptionError
    from demur.offline.recipes.user_errors import user_error, user_frames, user_frames_behind
    from demur.service.format.rules import ManifestError

    if isinstance(error, OptionError | ManifestError):
        return "\n".join(filter(None, [str(error), user_frames(error)]))
    if (in_recipe := user_error(error)) is not None:
        return f"{in_recipe}\n(--debug shows the whole traceback)" if hint else in_recipe
    if isinstance(error, PicklingError | AttributeError) and "pickle" in str(error).lower():
        return (
            f"a worker process of a data loader cannot be given what it needs: {error}; define the class or function "
            "at the top level of the recipe, or give the loader num_workers=0"
        )
    if type(error) is RuntimeError or not isinstance(error, ValueError | TypeError | OSError | RuntimeError):
        return None  # ours are named: ExportError, VerificationError
    return "\n".join(filter(None, [str(error), user_frames_behind(error)]))


def fail(message: str) -> NoReturn:
    """Print the message and stop with exit code 2."""
    print_error(f"error: {message}")
    raise typer.Exit(2)


@contextmanager
def said_what_is_kept(out: Path) -> Iterator[None]:
    """Ctrl-C or SIGTERM during a fit say what a next one begins with; exit code 130 or 143."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as stopped:
        from demur.offline.runtime.checkpoint import kept_by_checkpoint

        kept = kept_by_checkpoint(out)
        print_error(
            "stopped: nothing is kept, and nothing was written"
            if kept is None
            else f"stopped: {kept} keeps the progress; the same command goes on from there, or anew with --restart"
        )
        raise typer.Exit(143 if isinstance(stopped, Terminated) else 130) from None


def need_torch() -> None:
    """A clear word where the offline job is not installed."""
    if not all(importlib.util.find_spec(name) for name in ("torch", "demur.offline")):
        fail("this command needs the offline job: in a checkout of Demur, pip install '.[offline]'")


def need_recipe(path: Path, bundle: Path | None = None) -> None:
    """`ValueError` for a recipe that is not there, or no Python; `bundle` is the argument before it."""
    if bundle is not None and bundle.is_file() and (path / MANIFEST).is_file():
        raise ValueError(f"{bundle}: found a file, expected a bundle: give the bundle first, then the recipe")
    if (path / MANIFEST).is_file():
        raise ValueError(f"{path}: found a bundle, expected a recipe, a Python file")
    if not path.is_file():
        raise ValueError(f"{path}: no such file, expected a recipe; demur new TYPE {path} writes one to begin with")
    if b"\0" in path.read_bytes()[:FIRST_BYTES]:
        raise ValueError(
            f"{path}: found a file that is no text, expected a recipe, a Python file; its model() loads weights: "
            "network.load_state_dict(torch.load(path, weights_only=True))"
        )
    from demur.offline.recipes.user_errors import syntax_problem

    if problem := syntax_problem(path):
        raise ValueError(problem)


def is_network(path: Path, **options: Path | None) -> bool:
    """Whether it is a network in ONNX, or else a recipe; `ValueError` where it is not there, and for data in files
    beside a recipe, which has its own."""
    if path.suffix.lower() == ".onnx":
        if not path.is_file():
            raise ValueError(f"{path}: no such file, expected a network in ONNX")
        return True
    need_recipe(path)
    for name, file in options.items():
        if file is not None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option}: found {file} beside a recipe, which has its own data; leave the option out")
    return False


def need_onnx() -> None:
    """A clear word where the packages that edit a graph are not installed. Torch is not needed for that."""
    if not all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "demur.offline")):
        fail("this command needs onnx and onnxscript: in a checkout of Demur, pip install '.[offline]', or both alone")


@app.command()
def new(
    kind: Annotated[str, typer.Argument(help=f"What the data are: {', '.join(TEMPLATES)}.")],
    recipe: Annotated[Path, typer.Argument(help="The Python file to write.")],
) -> None:
    """Write a commented recipe to begin with; it fits as it is."""
    if kind not in TEMPLATES:
        expected = f"{', '.join(TEMPLATES[:-1])} or {TEMPLATES[-1]}"
        fail(f"found {kind!r:.60}{suggestion(kind, TEMPLATES)}, expected {expected}")
    if recipe.suffix != ".py":
        fail(f"{recipe}: found the suffix {recipe.suffix!r}, expected a name that ends in .py")
    text = (importlib.resources.files("demur") / "templates" / f"{kind}.py").read_text("utf-8")
    try:
        if recipe.exists():
            fail(f"{recipe}: exists; give another name")
        recipe.parent.mkdir(parents=True, exist_ok=True)
        replace_file(recipe, text.replace("NAME.py", str(recipe)).encode())
    except OSError as error:
        fail(f"{recipe}: could not be written ({error.strerror})")
    print_lines(
        [
            f"Wrote {recipe}: a recipe with made-up data.",
            f"Fit it: demur fit {shlex.quote(str(recipe))} --out bundles/{kind}",
        ]
    )


@app.command()
@with_config_options
def check(
    recipe: SourceArgument,
    data: Annotated[Path | None, typer.Option(help="Of an ONNX network: .npz of examples, to try the export.")] = None,
    debug: DebugOption = False,
    **given: Any,
) -> None:
    """Say what a fit would take of a network, try its export, and say the memory. Nothing is fitted or written."""
    need_torch()
    from demur.offline.config import check_each

    try:
        in_file = is_network(recipe, data=data)
        stated = parsed(given)
        check_each(stated)
    except ValueError as error:
        fail(str(error))
    from demur.offline.recipes.run import check_file, check_recipe

    with explained_errors(debug):
        print_lines(check_file(recipe, data, stated) if in_file else check_recipe(recipe, stated))


@app.command()
@with_config_options
def fit(
    recipe: SourceArgument,
    out: Annotated[Path, typer.Option(help="Where to write the bundle.")],
    data: Annotated[Path | None, typer.Option(help="Of an ONNX network: .npz of what it was trained on.")] = None,
    held_out: Annotated[Path | None, typer.Option(help="Of an ONNX network: .npz of examples like these.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing bundle, once the new one is ready.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start again: discard what an interrupted fit kept.")
    ] = False,
    debug: DebugOption = False,
    **given: Any,
) -> None:
    """Fit a bundle: choose weights, compute their posterior, calibrate, export, verify.

    The options after --debug replace fields of the recipe's configuration. A fit that was killed goes on where it was
    when it is started again. Under torchrun the data are shared out.
    """
    need_torch()
    from demur.offline.config import check_each

    try:  # before torch is imported, which takes seconds
        in_files = is_network(recipe, data=data, held_out=held_out)
        stated = parsed(given)
        check_each(stated)
        check_new(out, force)
        check_writable(out)
    except (BundleError, ValueError) as error:
        fail(str(error))
    from demur.offline.recipes.from_files import recipe_of_files
    from demur.offline.recipes.run import fit_recipe

    with said_what_is_kept(out), explained_errors(debug):
        source = recipe_of_files(recipe, data, held_out) if in_files else recipe
        if fit_recipe(source, out, stated, restart):
            print_card(out, warned=True)
            print_lines(["", f"Report: {out / 'report.html'}", f"Serve it: demur serve {shlex.quote(str(out))}"])


@app.command()
@with_policy_options
def evaluate(
    bundle: BundleArgument,
    recipe: RecipeArgument,
    *,
    json: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
    debug: DebugOption = False,
    policy: dict[str, Any],
) -> None:
    """Measure a bundle on the recipe's test_data() and, if it has one, foreign_data(), beside the plain network; or on
    the x and y of an .npz file.

    The options after --debug are settings of a service, and measure what it then answers.
    """
    need_torch()
    in_file = recipe.suffix.lower() == ".npz"
    try:
        if not in_file:
            need_recipe(recipe, bundle)
        if json is not None:
            check_json(json)
        predictor = open_predictor(bundle, policy)
    except (BundleError, ValueError) as error:
        fail(str(error))
    from demur.offline.recipes.run import evaluate_file, evaluate_recipe

    with explained_errors(debug):
        evaluation = (evaluate_file if in_file else evaluate_recipe)(predictor, recipe)
        print_evaluation(evaluation)
        if json is not None:
            write_json(json, evaluation_json(bundle, evaluation, predictor.decision.policy))


@app.command()
@with_policy_options
def score(
    bundle: BundleArgument,
    inputs: Annotated[Path, typer.Argument(help=INPUTS)],
    *,
    out: Annotated[Path, typer.Option(help="Where to write the rows: a .csv, .parquet or .jsonl file.")],
    batch_size: BatchSizeOption = 256,
    threads: Annotated[
        int | None,
        typer.Option(parser=whole_number(1), metavar="INTEGER", help="CPU threads; all of them unless given."),
    ] = None,
    header: HeaderOption = False,
    no_header: NoHeaderOption = False,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column of the table to write beside the predictions; several times.")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only the I-th of N parts of the inputs, for N runs that share the work."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="List so many inputs, those of the highest scores.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file, and discard what another job left.")
    ] = False,
    policy: dict[str, Any],
) -> None:
    """Predict every input of a file, as a service with the same settings would.

    A run that was killed goes on where it was.
    """
    from .scoring.command import listed, with_progress
    from .scoring.job import score_file

    try:
        if bundle.is_file() and (inputs / MANIFEST).is_file():
            raise ValueError(f"{bundle}: found a file, expected a bundle: give the bundle first, then the inputs")
        predictor = open_predictor(bundle, policy, threads)
        doubts, strange = list[str](), list[dict[str, Any]]()
        job = partial(
            score_file,
            predictor,
            inputs,
            out,
            batch_size=batch_size,
            csv_header=_either(header, no_header),
            keep=keep or (),
            part=None if rows is None else share_of(rows),
            force=force,
            top=top,
            tell=strange.extend,
            warn=doubts.append,
        )
        try:
            count = with_progress(lambda report: job(report=report))
        finally:  # they may say why it failed
            for doubt in doubts:
                print_error(f"warning: {doubt}")
        print_lines([*map(listed, strange), f"Scored {count:,} inputs: {out}"])
    except (BundleError, ValueError) as error:
        fail(str(error))
    except OSError as error:  # of a full disk, without a name
        fail(str(error) if error.filename else f"{out}: could not be written ({error.strerror or error})")


def _either(header: bool, no_header: bool) -> bool | None:
    """Whether a file has a header, None where nothing was said; raises `ValueError` where both were."""
    if header and no_header:
        raise ValueError("--header: found --no-header too, expected at most one of them")
    return header if header or no_header else None


@app.command()
@with_policy_options
def compare(
    first: Annotated[Path, typer.Argument(help="The bundle that answers now.", parser=_bundle, metavar="FIRST")],
    second: Annotated[Path, typer.Argument(help="The bundle that is to.", parser=_bundle, metavar="SECOND")],
    *,
    on: Annotated[Path, typer.Option(help=INPUTS)],
    batch_size: BatchSizeOption = 256,
    header: HeaderOption = False,
    no_header: NoHeaderOption = False,
    policy: dict[str, Any],
) -> None:
    """Say how the predictions of two bundles differ: labels, rejections and p-values, with 95 % intervals."""
    from .comparison import compare_on, print_differences
    from .scoring.command import with_progress

    found = []

    def job(report: Callable[[int, int], None]) -> int:
        predictors = open_predictor(first, policy), open_predictor(second, policy)
        found.append(compare_on(*predictors, on, batch_size, report, _either(header, no_header)))
        return len(found[0])

    try:
        with_progress(job, "compared")
    except (BundleError, ValueError, OSError) as error:
        fail(str(error))
    print_differences(found[0])


@app.command()
def inspect(bundle: BundleArgument) -> None:
    """Check a bundle and show its card."""
    try:
        read_bundle(bundle)
    except BundleError as error:
        fail(str(error))
    print_card(bundle)


@app.command()
def tag(
    bundle: BundleArgument,
    out: Annotated[Path, typer.Option(help="Where to write the copy.")],
    name: Annotated[str | None, typer.Option(help="Its name; that of the bundle unless given.")] = None,
    version: Annotated[str | None, typer.Option(help="Its version; that of the bundle unless given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing bundle, once the copy is ready.")] = False,
) -> None:
    """Write a copy of a bundle under another name or version, without a fit. The copy is not signed."""
    try:
        if name is None and version is None:
            raise ValueError("found neither, expected --name, --version or both")
        check_new(out, force)
        manifest = tag_bundle(bundle, out, name, version)
    except (BundleError, ValueError) as error:
        fail(str(error))
    print_lines([f"Wrote {manifest.name} version {manifest.version}: {out}"])


@app.command("pull")
def pull_command(
    uri: Annotated[str, typer.Argument(help=f"Where the bundle is: a folder, or {FORMS_SHOWN}.")],
    out: Annotated[Path, typer.Option(help="Where to write the bundle.")],
    trusted_keys: Annotated[
        Path | None,
        typer.Option(
            help="File of public keys, by default that of DEMUR_TRUSTED_KEYS; a bundle that none of them signed is "
            "refused."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing bundle, once the new one is here.")
    ] = False,
) -> None:
    """Fetch a bundle from elsewhere, and check it."""
    try:
        check_new(out, force)
        check_writable(out)
        manifest = pull_bundle(uri, out, trusted_keys)
    except BundleError as error:
        fail(str(error))
    print_lines([f"Fetched {manifest.name} version {manifest.version}: {out}"])


@app.command("push")
def push_command(
    bundle: Annotated[str, typer.Argument(help="Folder of a bundle.")],
    uri: Annotated[str, typer.Argument(help=f"Where to copy it: a folder, or {FORMS_SHOWN}.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace a bundle that is there; the Hub keeps it in its history anyway.")
    ] = False,
) -> None:
    """Copy a bundle elsewhere, with its signature and its page. A new repository of the Hub is private."""
    try:
        pushed = push(bundle, uri, force)
    except BundleError as error:
        fail(str(error))
    print_lines([f"Pushed {bundle}: {pushed}"])


@app.command()
def pin(
    models: Annotated[Path, typer.Argument(help="Folder of bundles, as for demur serve --models.")],
    name: Annotated[str, typer.Argument(help="Name of a model.")],
    version: Annotated[str | None, typer.Argument(help="The version that is to answer.", show_default=False)] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Let the latest version answer again.")] = False,
    canary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VERSION=SHARE", help="Another version for a share of the requests, such as 10=0.1; several times."
        ),
    ] = None,
) -> None:
    """Choose which version of a model answers the requests that name none, whatever versions come later.

    Writes versions.json in the folder, which a running service follows; anew where it cannot be read.
    """
    try:
        if (version is None) != latest:
            found = "neither" if version is None else "both"
            raise ValueError(f"found {found}, expected a version or --latest")
        shares = dict(map(version_share, canary or ()))
        if shares and version is None:
            raise ValueError("--canary: found it beside --latest, expected a version to pin")
        lines = pin_version(models, name, version, shares)
    except ValueError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{models}: {error.strerror or error}")
    print_lines(lines)


@app.command()
def export(
    bundle: BundleArgument,
    standalone: Annotated[Path, typer.Option(help="The ONNX file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file where it exists.")] = False,
) -> None:
    """Write a bundle as one ONNX model, from inputs to probabilities, variances and the decision, for any ONNX runtime.

    The model is compared with the bundle's own predictions before it is written. It neither decodes images nor warns
    of inputs out of range.
    """
    need_onnx()
    from demur.offline.export.standalone.errors import StandaloneError
    from demur.offline.export.standalone.file import export_standalone

    try:
        print_standalone(export_standalone(bundle, standalone, force=force))
    except (BundleError, StandaloneError) as error:
        fail(str(error))
