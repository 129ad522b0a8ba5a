"""Whether what a failed call held is freed by its end, and not by a collection of garbage some time later."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Nothing collects garbage in the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Held:
    """Stands for what a request holds, such as its body."""


async def frees(call: Callable[[], Awaitable[object]], error: type[Exception]) -> bool:
    """Whether what the caller of a call that fails with `error` holds is gone once the error is."""
    found: list[weakref.ref[Held]] = []

    async def request() -> None:
        body = Held()
        found.append(weakref.ref(body))
        await call()

    with uncollected():
        try:
            await request()
        except error:
            pass
        else:
            raise AssertionError(f"expected {error.__name__}")
        for _ in range(20):
            await asyncio.sleep(0)
        return found[0]() is None
