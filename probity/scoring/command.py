"""`probity score` with a progress bar."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from probity.scoring.job import score_file
from service.codec.answers import Coverage
from service.inference.predictor import Predictor


def run_score(
    predictor: Predictor, inputs: Path, out: Path, coverage: Coverage, batch_size: int, *, force: bool
) -> str:
    """Score the inputs, and say how many there were. The bar is drawn on stderr, and only on a terminal."""
    screen = Console(stderr=True)
    shown = TextColumn("scored"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*shown, console=screen, disable=not screen.is_terminal) as progress:
        task = progress.add_task("scored")

        def report(done: int, count: int) -> None:
            progress.update(task, completed=done, total=count)

        count = score_file(predictor, inputs, out, batch_size=batch_size, coverage=coverage, force=force, report=report)
    return f"Scored {count:,} inputs: {out}"
