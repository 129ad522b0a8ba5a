"""Dynamic batching: requests in, one result each out, computed in shared batches. Standard library and NumPy only.

    submit(rows) -> RowQueue: which rows go next -> merge -> compute in a thread -> split -> each one's result

`queue` schedules, `pieces` merges and splits, `batcher` runs. None knows about networks or HTTP.
"""

from probity.service.batching.batcher import Answered, Batch, DynamicBatcher, Fallback
from probity.service.batching.clock import Clock, Timer
from probity.service.batching.compute_threads import ComputeThreads
from probity.service.batching.errors import (
    BatcherFailed,
    ClientDeadlineExceeded,
    Closed,
    DeadlineExceeded,
    QueueFull,
    Unserved,
)
from probity.service.batching.pieces import Rows
from probity.service.batching.queue import Limits

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
    "Fallback",
    "Limits",
    "QueueFull",
    "Rows",
    "Timer",
    "Unserved",
]
