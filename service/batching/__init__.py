"""Dynamic batching: requests in, one result each out, computed in shared batches. Standard library and NumPy only.

    Room -> submit(rows) -> RowQueue: which rows go next -> merge -> compute in a thread -> split -> each one's result

`room` admits, `queue` schedules, `pieces` merges and splits, `batcher` runs. None knows about networks or HTTP.
"""

from .batcher import Answered, Batch, DynamicBatcher
from .clock import Clock, Timer
from .compute_threads import ComputeThreads
from .errors import BatcherFailed, ClientDeadlineExceeded, Closed, DeadlineExceeded, QueueFull, Unserved
from .pieces import Rows
from .queue import Limits

__all__ = [
    "Answered",
    "Batch",
    "BatcherFailed",
    "ClientDeadlineExceeded",
    "Clock",
    "Closed",
    "ComputeThreads",
    "DeadlineExceeded",
    "DynamicBatcher",
    "Limits",
    "QueueFull",
    "Rows",
    "Timer",
    "Unserved",
]
