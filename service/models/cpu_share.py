"""How a worker process divides its CPUs among the batches that it computes at the same time."""

from ..environment.cpu import available_cpus
from ..settings import Settings


def all_threads(settings: Settings) -> int:
    """This worker process's share of the container's CPUs, which batches share."""
    return max(1, available_cpus() // settings.workers)


def useful_threads(threads: int) -> int:
    """At most one for each CPU: more would only wait for each other."""
    return min(threads, available_cpus())


def share_of(settings: Settings, threads: int) -> int:
    """The CPUs that a batch of `threads` threads takes."""
    return min(threads, all_threads(settings))


def batches_at_once(settings: Settings, threads: int) -> int:
    """How many batches of `threads` each are computed at the same time."""
    return all_threads(settings) // share_of(settings, threads)
