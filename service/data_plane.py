"""The way of a prediction, the same whatever protocol it comes by.

    find the model -> read -> decode -> queue and compute, decide -> record -> encode

A protocol makes a `Call` of a request, and binds it to a model, where it refuses what can be refused before the body is
read; its `Reader` makes an `Asked` of the body, which makes a response of the `Outcome`. It knows of no queue, no
metric and no audit trail.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from starlette.datastructures import Headers

from .batching import Answered, DeadlineExceeded
from .codec.answers import warnings_of
from .decoding import Content
from .http.admission import Lease
from .http.deadline import HEADER as TIMEOUT_HEADER
from .http.deadline import RequestDeadline
from .http.exchange import Exchange
from .http.problems import ProblemError
from .http.route_key import ticket_of
from .inference.decision import Decision
from .inference.predictor import NonFinitePrediction, Prediction
from .models.served import ServedModel
from .recording.audit_lines import Asker
from .runtime import Runtime

INLINE_ROWS, INLINE_NUMBERS = 64, 4096  # encoding so many takes no longer than that
RESPONSE_BYTES = 64 * 2**10  # a shorter one fits into the connection's own buffer, and leaves at once


class Response(Protocol):
    """Of whatever protocol."""

    @property
    def body(self) -> bytes | memoryview:
        """As it is sent."""


R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class Call:
    """A request. name, version: of the model, None for those that answer by default. read: the body. attended: a block
    that ends when the client leaves. kept: whether the body stays in memory until the request ends."""

    runtime: Runtime
    exchange: Exchange
    headers: Headers
    lease: Lease
    name: str | None
    version: str | None
    read: Callable[[RequestDeadline], Awaitable[bytes]]
    attended: Callable[[], AbstractAsyncContextManager[object]]
    kept: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a request. receipt: makes the answer's, or None without feedback."""

    model: ServedModel
    decision: Decision
    answered: Answered[Prediction]
    warnings: list[str]
    decode_seconds: float
    receipt: Callable[[], str | None]


@dataclass(frozen=True)
class Asked(Generic[R]):
    """What a body asks for. encode: makes the response. identity: None for the id of the log. rate: of false
    rejections, None for the model's own. seconds: it may take from its beginning on, None: as long as others. trial:
    its examples are no traffic of the model."""

    content: Content
    encode: Callable[[Outcome], R]
    identity: str | None
    rate: float | None = None
    seconds: float | None = None
    trial: bool = False


@dataclass(frozen=True)
class Reader(Generic[R]):
    """Of the body of a request to one model. form: a media type; bodies of one form have about as many bytes a row.
    read: raises what the exception handlers answer. effort: the size in bytes of JSON that take as long to read."""

    form: str
    read: Callable[[bytes], Asked[R]]
    effort: Callable[[bytes], int] = len


async def infer(call: Call, bind: Callable[[ServedModel], Reader[R]]) -> R:
    """The answer."""
    runtime, exchange, lease = call.runtime, call.exchange, call.lease
    steps, decoding, longest = exchange.steps, runtime.decoding, runtime.settings.request_timeout_seconds
    deadline = RequestDeadline.of(exchange.arrived, longest, call.headers.get(TIMEOUT_HEADER))
    with runtime.store.find(call.name, call.version, partial(ticket_of, call.headers)).in_use() as model:
        reader = bind(model)
        with deadline.attributed():
            body, began = await call.read(deadline), asyncio.get_running_loop().time()
            form = reader.form, len(body)
            place = model.place(*form)  # nothing is decoded that the queue would reject
            if not place.take():
                async with call.attended():
                    with lease.waiting() as stays:
                        body = body if stays else b""
                        await place.wait(deadline.at if stays or not call.kept else began, stays=stays)
            with place:
                steps.received(model)
                read, effort = partial(reader.read, body), reader.effort(body)
                waiting = partial(_waiting, call, deadline.at)
                asked = await decoding.sized(effort, read, waiting)
                decoded = await decoding.decoded(asked.content, model.predictor, waiting)
                model.decoded(*form, len(decoded.array))
        steps.decoded(len(decoded.array))
        lease.grow(decoded.array.nbytes)
        decision = model.decision(asked.rate)
        deadline = deadline if asked.seconds is None else deadline.sooner(began + asked.seconds)
        try:
            with deadline.attributed():
                async with call.attended():
                    answered = await model.predict(
                        decoded.array, deadline.at, decision, observed=not asked.trial, waited=place.waited
                    )
        except NonFinitePrediction as error:
            raise _non_finite(f"{decoded.field}[{error.index}]") from None
        steps.answered(answered)
        result = answered.result
        asker = Asker(exchange.client[0] if exchange.client else None, exchange.key)
        identity, recording = asked.identity or exchange.identity, runtime.recording
        recording.record(asker, model, decision, identity, result, decoded.array, asked.trial)
        warnings = [*decoded.warnings, *warnings_of(result, model.predictor, decoded.array, decoded.field)]
        receipt = partial(recording.receipt, model, decision, result)
        outcome = Outcome(model, decision, answered, warnings, steps.decode_seconds, receipt)
        encode = partial(asked.encode, outcome)
        short = len(result) <= INLINE_ROWS and result.mean.size <= INLINE_NUMBERS
        response = encode() if short else await decoding.in_thread(encode)
        if len(response.body) > RESPONSE_BYTES:
            lease.grow(len(response.body))
        return response


def _non_finite(place: str) -> ProblemError:
    detail = f"{place}: the network's output is not finite; the values may be far too large."
    expected = "values of the size the model was trained on"
    return ProblemError(422, "non_finite_output", detail, field=place, expected=expected)


@contextlib.asynccontextmanager
async def _waiting(call: Call, deadline: float) -> AsyncIterator[None]:
    """Raises `DeadlineExceeded` or `ClientDisconnect`."""
    try:
        async with asyncio.timeout_at(deadline), call.attended():
            yield
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed while the request was decoded") from None
