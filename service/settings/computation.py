"""Where the service listens, and how it computes."""

from typing import Annotated

from pydantic import BaseModel, Field

from .types import Positive


class ComputationSettings(BaseModel):
    """Where the service listens, and how it computes."""

    host: Annotated[str, Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8000
    grpc_port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="Port of the Open Inference Protocol over gRPC; if unset, there is none."),
    ] = None
    workers: Annotated[
        Positive, Field(description="Number of processes that serve the port, each with its own models.")
    ] = 1
    threads: Annotated[
        Positive | None,
        Field(
            description="CPU threads per batch; if unset, 1, or all of them for a network that is slow on one example."
        ),
    ] = None
    max_batch_size: Annotated[
        Positive | None,
        Field(
            description="Maximum examples per batch. It only lowers the built-in limit: 64, or fewer for a model whose "
            "variances would take more than 64 MiB for a batch."
        ),
    ] = None
