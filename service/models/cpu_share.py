"""How a worker process divides its CPUs among the batches that it computes at the same time."""

from probity.service.environment.cpu import available_cpus
from probity.service.settings import Settings


def all_threads(settings: Settings) -> int:
    """This worker process's share of the container's CPUs."""
    return max(1, available_cpus() // settings.workers)


def useful_threads(threads: int) -> int:
    """At most one for each CPU: more would only wait for each other."""
    return min(threads, available_cpus())


def thread_count(settings: Settings) -> int:
    """The slots that batches share: `concurrency` where it is set, otherwise one for each CPU."""
    return settings.concurrency or all_threads(settings)


def share_of(settings: Settings, threads: int) -> int:
    """The slots that a batch of `threads` threads takes."""
    return 1 if settings.concurrency else min(threads, thread_count(settings))


def batches_at_once(settings: Settings, threads: int) -> int:
    """How many batches of `threads` each are computed at the same time."""
    return thread_count(settings) // share_of(settings, threads)
