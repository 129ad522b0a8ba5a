"""How much and how long: queues, deadlines, bodies, images, slow clients and the shutdown."""

from typing import Annotated

from pydantic import BaseModel, Field

from .types import Bytes, Positive, Seconds


class LimitSettings(BaseModel):
    """How much and how long: queues, deadlines, bodies, images, slow clients and the shutdown."""

    max_queue_rows: Annotated[
        Positive,
        Field(
            description="Maximum examples waiting for one model; further requests wait a second for room, and then "
            "get 429. An empty queue accepts a request of any size."
        ),
    ] = 4096
    request_timeout_seconds: Annotated[
        Seconds, Field(description="How long a request may take before it gets 504. Clients may ask for less.")
    ] = 30.0
    compute_timeout_seconds: Annotated[
        Seconds,
        Field(
            description="How long a batch may compute before `/health/live` and `/health/ready` return 503, until "
            "it ends; of several workers, one that shows no sign of life for half as long, at least 5 s, is replaced."
        ),
    ] = 60.0
    max_body_bytes: Annotated[
        Bytes,
        Field(
            description="Maximum size of a request body, before and after decompression; a larger one gets 413, and so "
            "do examples that take four times as much as the network takes them (one is always accepted)."
        ),
    ] = 16 * 2**20
    max_pending_bytes: Annotated[
        Bytes,
        Field(
            description="Maximum bytes of bodies, decoded inputs and unsent responses held at once; further "
            "requests get 429. If no other request holds any, a request of any size is accepted."
        ),
    ] = 256 * 2**20
    client_timeout_seconds: Annotated[
        Seconds,
        Field(
            description="How long a body may take to arrive, within the request's own time, before the request gets "
            "408, and how long a client may read none of its response before the connection is closed; a request's "
            "head has a third of it."
        ),
    ] = 30.0
    max_rows: Annotated[Positive, Field(description="Maximum examples per request; one with more gets 413.")] = 1024
    max_pixels: Annotated[
        Positive,
        Field(
            description="Maximum pixels per image, checked before it is decoded; a larger image gets 413, and so do "
            "four times as many in all images of a request."
        ),
    ] = 16 * 2**20
    drain_seconds: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="After SIGTERM, how long to keep accepting requests while `/health/ready` already returns 503.",
        ),
    ] = 0.0
    shutdown_seconds: Annotated[
        Positive, Field(description="How long running requests may take to finish after the drain.")
    ] = 30
