"""How a worker process divides its CPUs among the batches that it computes at the same time."""

from collections.abc import Iterable

from service.environment.cpu import available_cpus
from service.inference.matrix_threads import matrix_threads
from service.settings import Settings


def all_threads(settings: Settings) -> int:
    """This worker process's share of the container's CPUs."""
    return max(1, available_cpus() // settings.workers)


def thread_count(settings: Settings) -> int:
    """The slots that batches share: `concurrency` where it is set, otherwise one for each CPU."""
    return settings.concurrency or all_threads(settings)


def share_of(settings: Settings, threads: int) -> int:
    """The slots that a batch of `threads` threads takes."""
    return 1 if settings.concurrency else min(threads, thread_count(settings))


def batches_at_once(settings: Settings, threads: int) -> int:
    """How many batches of `threads` each are computed at the same time."""
    return thread_count(settings) // share_of(settings, threads)


def fit_matrix_products(threads: Iterable[int | None]) -> None:
    """Let NumPy's matrix products use no more threads than any served model's network does.

    BLAS has one thread count for the whole process. Batches computed side by side would compete for CPUs with more; a
    network that uses all CPUs spends little of its time in the matrix product.
    """
    matrix_threads().keep_to(min((each or available_cpus() for each in threads), default=1))
