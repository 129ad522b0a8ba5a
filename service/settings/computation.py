"""Where the service listens, and how it computes."""

from typing import Annotated

from pydantic import BaseModel, Field

from probity.service.settings.types import Positive, Seconds


class ComputationSettings(BaseModel):
    """Where the service listens, and how it computes."""

    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8000
    workers: Annotated[
        Positive, Field(description="Number of processes that serve the port, each with its own models.")
    ] = 1
    hang_seconds: Annotated[
        Seconds, Field(description="With several workers, how long one may send no heartbeat before it is replaced.")
    ] = 30.0
    threads: Annotated[
        Positive | None,
        Field(
            description="CPU threads per batch; if unset, 1, or all of them for a network that is slow on one example."
        ),
    ] = None
    concurrency: Annotated[
        Positive | None,
        Field(description="Batches computed in parallel; if unset, as many as the CPUs allow."),
    ] = None
    max_batch_size: Annotated[
        Positive | None,
        Field(
            description="Maximum examples per batch. It only lowers the built-in limit: 64, or fewer for a model whose "
            "variances would take more than 64 MiB for a batch."
        ),
    ] = None
    max_queue_delay_seconds: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False, description="How long an example may wait for others to share its batch."),
    ] = 0.0
