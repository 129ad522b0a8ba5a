"""`python -m demur.service.codec.decoders.child`: one task after the other, until its parent closes the socket or
dies."""

import logging
import os
import resource
import signal
import socket
import sys
from typing import Any

from ...environment.child import be_expendable
from ...inference.texts import TextReader
from ..arrays import InputError, InputTooLarge
from ..forms import FormError, FormFieldError
from ..plain_texts import PlainTexts
from .channel import MOST_TOKENIZERS, SIZE, Answer, GivenTokenizer, pack_answer, sizes_from_bytes, unpack

READY = b"+"


def main(descriptor: int, data_bytes: int) -> None:
    """Serve the socket `descriptor` with at most `data_bytes` of memory."""
    _ignore_signals()
    logging.disable()  # errors of images are sent to the client
    be_expendable()
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    readers: dict[str, TextReader] = {}
    silent = os.open(os.devnull, os.O_WRONLY)
    with socket.socket(fileno=descriptor) as line:
        line.sendall(READY)
        while (task := _receive(line)) is not None:
            if isinstance(task, GivenTokenizer):
                if len(readers) == MOST_TOKENIZERS:
                    readers.clear()
                os.dup2(silent, sys.stderr.fileno())  # or each panic of the package is many lines of the service's log
                readers[task.identity] = TextReader(task.data, task.length)
                line.sendall(READY)
                continue
            line.sendall(READY)
            for part in pack_answer(_answer(readers, *task)):
                line.sendall(part)


def _answer(readers: dict[str, TextReader], given: Any, *arguments: Any) -> Answer:
    """The array, or the error that says what is wrong with the images or texts."""
    try:
        if isinstance(given, PlainTexts):
            return given.read(readers[arguments[0]]).table()
        array: Answer = given.array(*arguments)
        return array
    except (InputError, FormError, FormFieldError) as error:
        return error
    except MemoryError:
        found = f"{given.plural} that take more memory than is allowed"
        return InputTooLarge(given.field, found, "fewer or smaller")


def _receive(line: socket.socket) -> Any:
    """The next task; None at the end."""
    count = _read(line, SIZE.size)
    if count is None:
        return None
    sizes = _read(line, SIZE.size * sizes_from_bytes(count)[0])
    assert sizes is not None
    parts = [_read(line, size) for size in sizes_from_bytes(sizes)]
    return unpack([part for part in parts if part is not None])


def _read(line: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        more = line.recv_into(view[got:])
        if not more:
            return None
        got += more
    return data


def _ignore_signals() -> None:
    """Signals reach every process of a terminal or a container, but the parent still needs the running task."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
