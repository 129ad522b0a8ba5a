"""The way of a prediction, the same whatever protocol it comes by.

    find the model -> read -> decode -> queue and compute, decide -> record -> encode

A protocol binds a request to a model, and refuses what can be refused before the body is read; its `Reader` makes an
`Asked` of the body, which makes a response of the `Outcome`. It knows of no queue, no metric and no audit trail.
Numbers are decoded on the event loop if that is quick, otherwise in a thread; images in a process; so are texts, unless
they are short and their tokenizer has no parts of unknown cost.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from fastapi import Request, Response

from .batching import Answered, DeadlineExceeded
from .bundle import InputSpec
from .codec.answers import warnings_of
from .codec.arrays import Array, InputTooLarge
from .codec.decoding import Decoded
from .codec.encoded_images import CHEAP_PIXELS, EncodedImages
from .codec.images import check_images
from .codec.plain_texts import PlainTexts
from .http.admission import Lease, lease_of
from .http.bodies import read_body, reserve, reserve_response
from .http.disconnect import CancelOnDisconnect
from .http.problems import ProblemError
from .http.route_key import ticket_of
from .http.steps import steps_of
from .inference.decision import Decision
from .inference.predictor import NonFinitePrediction, Predictor
from .models.served import AnyPrediction, ServedModel
from .runtime import RequestDeadline, Runtime, runtime_of

T = TypeVar("T")
# Decoding so few bytes takes no longer than handing them to a thread.
INLINE_BYTES = 16 * 2**10
INLINE_ROWS, INLINE_NUMBERS = 64, 4096  # encoding so many takes no longer than that
Content = Decoded | EncodedImages | PlainTexts


@dataclass(frozen=True)
class Outcome:
    """What became of a request. receipt: makes the answer's, or None without feedback."""

    model: ServedModel
    decision: Decision
    answered: Answered[AnyPrediction]
    warnings: list[str]
    decode_seconds: float
    receipt: Callable[[], str | None]


@dataclass(frozen=True)
class Asked:
    """What a body asks for. encode: makes the response. identity: None for the id of the log. rate: of false
    rejections, None for the model's own. seconds: it may take from its beginning on, None: as long as others. trial:
    its examples are no traffic of the model."""

    content: Content
    encode: Callable[[Outcome], Response]
    identity: str | None
    rate: float | None = None
    seconds: float | None = None
    trial: bool = False


@dataclass(frozen=True)
class Reader:
    """Of the body of a request to one model. form: a media type; bodies of one form have about as many bytes a row.
    read: raises what the exception handlers answer. effort: the size in bytes of JSON that take as long to read."""

    form: str
    read: Callable[[bytes], Asked]
    effort: Callable[[bytes], int] = len


async def infer(request: Request, bind: Callable[[Request, ServedModel, Runtime], Reader]) -> Response:
    """The answer to a request whose path names the model."""
    runtime, path, began = runtime_of(request), request.path_params, asyncio.get_running_loop().time()
    deadline, lease, steps = runtime.deadline(request), lease_of(request), steps_of(request)
    with runtime.store.find(path.get("name"), path.get("version"), partial(ticket_of, request)).in_use() as model:
        reader = bind(request, model, runtime)
        with deadline.attributed():
            body = await _read(request, runtime, deadline, lease)
            with model.decoding(reader.form, len(body)) as room:  # nothing is decoded that the queue would reject
                steps.received(model)
                read, effort = partial(reader.read, body), reader.effort(body)
                asked = await _decode_numbers(request, runtime, deadline.at, effort, read)
                decoded = await _decoded(request, runtime, deadline.at, asked.content, model.predictor)
                room(len(decoded.array))
        steps.decoded(len(decoded.array))
        reserve(lease, decoded.array.nbytes)
        decision = model.decision(asked.rate)
        deadline = deadline if asked.seconds is None else deadline.sooner(began + asked.seconds)
        try:
            with deadline.attributed():
                async with CancelOnDisconnect(request):
                    answered = await model.predict(decoded.array, deadline.at, decision, observed=not asked.trial)
        except NonFinitePrediction as error:
            raise _non_finite(f"{decoded.field}[{error.index}]") from None
        steps.answered(answered)
        result = answered.result
        runtime.record(request, model, decision, asked.identity, result, decoded.array, not asked.trial)
        warnings = [*decoded.warnings, *warnings_of(result, model.predictor, decoded.array, decoded.field)]
        receipt = partial(runtime.receipt, model, decision, result)
        outcome = Outcome(model, decision, answered, warnings, steps.decode_seconds, receipt)
        encode = partial(asked.encode, outcome)
        short = len(result) <= INLINE_ROWS and result.mean.size <= INLINE_NUMBERS
        response = encode() if short else await runtime.in_thread(encode)
        reserve_response(lease, len(response.body))
        return response


def _non_finite(place: str) -> ProblemError:
    detail = f"{place}: the network's output is not finite; the values may be far too large."
    expected = "values of the size the model was trained on"
    return ProblemError(422, "non_finite_output", detail, field=place, expected=expected)


async def _read(request: Request, runtime: Runtime, deadline: RequestDeadline, lease: Lease) -> bytes:
    """The body; raises what `read_body` raises, and `ProblemError` (504) where the client's own deadline, sooner than
    the operator's, passes before its body is there."""
    settings = runtime.settings
    reading = read_body(request, settings.max_body_bytes, settings.client_timeout_seconds, lease, runtime.body_threads)
    if deadline.at >= deadline.latest:
        return await reading
    try:
        async with asyncio.timeout_at(deadline.at):
            return await reading
    except TimeoutError:
        detail = "The deadline passed while the body arrived."
        raise ProblemError(504, "deadline_client", detail, headers={"Connection": "close"}) from None


async def _decode_numbers(request: Request, runtime: Runtime, deadline: float, size: int, decode: Callable[[], T]) -> T:
    """The result of `decode`, which takes a time in proportion to `size`, in bytes.

    Raises `DeadlineExceeded`, `ClientDisconnect`, and what `decode` raises. The thread stays busy until `decode`
    returns, whatever happens to the request.
    """
    if size <= INLINE_BYTES:
        return decode()
    async with _until(request, deadline):
        return await runtime.in_thread(decode)


async def _decoded(
    request: Request, runtime: Runtime, deadline: float, content: Content, predictor: Predictor
) -> Decoded:
    """As the network takes it.

    Raises `InputError` and the like, `DecoderUnavailable`, and `DeadlineExceeded` or `ClientDisconnect`: then the
    process that decodes is killed.
    """
    spec, reader = predictor.manifest.input, predictor.reader
    if isinstance(content, Decoded):
        return content
    if not isinstance(content, PlainTexts):
        return Decoded(await _decode_images(request, runtime, deadline, content, spec), content.field)
    assert reader is not None  # the texts were checked
    if content.cheap(reader):
        tokens = content.read(reader)
    else:
        async with _until(request, deadline):
            tokens = await runtime.text_decoders.tokens(content, reader)
    return Decoded(tokens.array(spec), content.field, tokens.warnings(content.field))


async def _decode_images(
    request: Request, runtime: Runtime, deadline: float, pictures: EncodedImages, spec: InputSpec
) -> Array:
    """The images, (B, C, H, W) float32."""
    limits = runtime.limits
    check_images(pictures.field, 1, spec, 1)
    if pictures.cheap(limits.rows(spec)):
        with contextlib.suppress(InputTooLarge):  # it may be small enough for a process
            return pictures.array(spec, replace(limits, max_pixels=min(limits.max_pixels, CHEAP_PIXELS)))
    async with _until(request, deadline):
        return await runtime.decoders.array(pictures, spec, limits)


@contextlib.asynccontextmanager
async def _until(request: Request, deadline: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(deadline), CancelOnDisconnect(request):
            yield
    except TimeoutError:
        raise DeadlineExceeded("the deadline passed while the request was decoded") from None
