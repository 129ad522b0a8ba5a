"""Requests and bundle files with damaged bytes: the readers accept or refuse them, quickly and in little memory.

`tests/service/oip/test_fuzz.py` damages requests of the Open Inference Protocol.
"""

import io
import json
import random
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.core.memory import peak_bytes, reset_peak, resident_bytes
from demur.service.bundle import CALIBRATION, MANIFEST, MODEL, POSTERIOR, InputSpec, read_manifest
from demur.service.codec.arrays import InputError, InputLimits
from demur.service.codec.decoding import FieldError, NotJson, from_json, from_npy
from demur.service.codec.json_limits import JsonLimits
from demur.service.format.calibration_tensors import calibration_from_bytes
from demur.service.format.files import BundleError
from demur.service.format.posterior_tensors import posterior_from_bytes
from demur.service.format.seal import manifest_from_bytes
from demur.service.inference.onnx_wire import WireError, may_repeat
from tests.support.server import ROOT

GOLDEN = ROOT / "tests" / "golden" / "v1" / "bundle"
REFUSALS = (BundleError, InputError, NotJson, FieldError, WireError)
CASES = 20_000
MOST_SECONDS, MOST_BYTES = 1.0, 64 * 2**20
SPEC, LIMITS, BOUNDS = InputSpec(shape=(2,)), InputLimits(max_rows=4, max_pixels=100), JsonLimits(1000, 1000, 1000)
EXTREMES = (b"-1", b"0", b"1e999", b"99999999999999999999", b"null", b"true", b"[]", b"{}", b'""', b"NaN", b"[[[[")
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
Reader = Callable[[bytes], Any]


def readers() -> dict[str, tuple[Reader, bytes]]:
    """What reads bytes from outside, each with good ones."""
    manifest, _ = read_manifest(GOLDEN)
    files = {name: (GOLDEN / name).read_bytes() for name in (MANIFEST, POSTERIOR, CALIBRATION, MODEL)}
    numbers = np.arange(4, dtype=np.float32).reshape(2, 2)
    npy = io.BytesIO()
    np.save(npy, numbers)
    return {
        "JSON": (lambda body: from_json(body, SPEC, LIMITS), json.dumps({"inputs": numbers.tolist()}).encode()),
        "npy": (lambda body: from_npy(body, SPEC, LIMITS), npy.getvalue()),
        "manifest": (lambda data: manifest_from_bytes(GOLDEN / MANIFEST, data), files[MANIFEST]),
        "posterior": (lambda data: posterior_from_bytes(GOLDEN / POSTERIOR, data, manifest), files[POSTERIOR]),
        "calibration": (lambda data: calibration_from_bytes(GOLDEN / CALIBRATION, data, manifest), files[CALIBRATION]),
        "graph": (may_repeat, files[MODEL]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", readers())
def test_damaged_bytes_are_accepted_or_refused(name: str) -> None:
    reader, good = readers()[name]
    reader(good)
    rng, slowest = random.Random(name), 0.0
    reset_peak()
    before = resident_bytes()
    for number in range(CASES):
        data = mutated(good, rng)
        start = time.perf_counter()
        try:
            reader(data)
        except REFUSALS:
            pass
        except Exception as error:
            raise AssertionError(f"case {number}: {data[:200]!r}") from error
        slowest = max(slowest, time.perf_counter() - start)
    assert slowest < MOST_SECONDS
    assert peak_bytes() - before < MOST_BYTES


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: flipped, inserted, removed or doubled bytes, a cut, an extreme number or word."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change(changed, rng)
    return bytes(changed)


def _change(data: bytearray, rng: random.Random) -> None:
    at, length = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 32))
    kind = rng.randrange(7)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at:at] = rng.randbytes(length)
    elif kind == 2:
        del data[at : at + length]
    elif kind == 3:
        data[at:at] = data[at : at + length]
    elif kind == 4:
        del data[at:]
    elif kind == 5:
        data[at : at + 8] = struct.pack(rng.choice("<>") + "Q", rng.choice(NUMBERS))
    else:
        data[at : at + length] = rng.choice(EXTREMES)
