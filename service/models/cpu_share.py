"""How this process divides its processors among the batches that are computed at the same time."""

from collections.abc import Iterable

from service.environment.cpu import available_cpus
from service.inference.matrix_threads import matrix_threads
from service.settings import Settings


def all_threads(settings: Settings) -> int:
    """This worker process's part of the container's CPU share."""
    return max(1, available_cpus() // settings.workers)


def worker_count(settings: Settings) -> int:
    """What batches share: so many processors, or where the settings say how many batches, so many places."""
    return settings.concurrency or all_threads(settings)


def share_of(settings: Settings, threads: int) -> int:
    """How much of that a batch takes which `threads` compute."""
    return 1 if settings.concurrency else min(threads, worker_count(settings))


def batches_at_once(settings: Settings, threads: int) -> int:
    """How many batches of `threads` each are computed at the same time."""
    return worker_count(settings) // share_of(settings, threads)


def fit_matrix_products(threads: Iterable[int | None]) -> None:
    """Let NumPy's matrix products use no more threads than any served model's network does.

    The libraries have one number for the whole process. For batches side by side more than their own thread would be
    a fight for processors; a network that gets them all spends little of its time in the product that follows.
    """
    matrix_threads().keep_to(min((each or available_cpus() for each in threads), default=1))
