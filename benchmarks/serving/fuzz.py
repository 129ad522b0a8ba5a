"""A million damaged requests and files: the readers must answer or refuse, quickly and in little memory."""

import io
import json
import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.memory import peak_bytes, reset_peak, resident_bytes
from benchmarks.core.settings import Settings, Values
from probity.service.bundle import CALIBRATION, MANIFEST, MODEL, POSTERIOR, InputSpec, read_manifest
from probity.service.codec.arrays import InputError, InputLimits
from probity.service.codec.decoding import FieldError, NotJson, from_json, from_npy
from probity.service.codec.json_limits import JsonLimits
from probity.service.format.calibration_tensors import calibration_from_bytes
from probity.service.format.files import BundleError
from probity.service.format.posterior_tensors import posterior_from_bytes
from probity.service.format.seal import manifest_from_bytes
from probity.service.inference.onnx_subgraph import extract_subgraph
from probity.service.inference.onnx_wire import WireError
from probity.service.oip import array_of, parse_request

GOLDEN = Path("tests/golden/v1/bundle")
REFUSALS = (BundleError, InputError, NotJson, FieldError, WireError)
CASES, QUICK_CASES = 1_000_000, 7_000
SHARES = {"v2 JSON": 0.2, "v2 binary": 0.35, "JSON": 0.1, "npy": 0.1, "manifest": 0.1, "posterior": 0.05}
SHARES |= {"calibration": 0.05, "graph": 0.05}
SPEC, LIMITS, BOUNDS = InputSpec(shape=(2,)), InputLimits(max_rows=4, max_pixels=100), JsonLimits(1000, 1000, 1000)
EXTREMES = (b"-1", b"0", b"1e999", b"99999999999999999999", b"null", b"true", b"[]", b"{}", b'""', b"NaN", b"[[[[")
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
Reader = Callable[[bytes], Any]


@dataclass
class Tally:
    """The outcomes of one reader's cases."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_seconds: float = 0.0
    crashes: list[str] = field(default_factory=list)


def run(settings: Settings) -> Values:
    """Give each reader its share of the cases; any exception but a documented refusal is a crash."""
    total = settings.choose(CASES, QUICK_CASES)
    readers, found = _readers(), {name: Tally() for name in SHARES}
    warm_up(readers)
    reset_peak()
    before = resident_bytes()
    for name in settings.track(list(SHARES), "Readers", len(SHARES)):
        reader, samples = readers[name]
        _fuzz(found[name], reader, samples, round(SHARES[name] * total), random.Random(name))
    grown = max(0, peak_bytes() - before)
    return {
        "cases": sum(one.cases for one in found.values()),
        "crashes": sum(len(one.crashes) for one in found.values()),
        "slowest_seconds": max(one.slowest_seconds for one in found.values()),
        "peak_growth_bytes": grown,
        "readers": {name: {**vars(one), "outcomes": dict(one.outcomes)} for name, one in found.items()},
    }


def warm_up(readers: dict[str, tuple[Reader, list[bytes]]]) -> None:
    """Every sample is good: a reader that refuses it would make the rest meaningless."""
    for reader, samples in readers.values():
        for sample in samples:
            reader(sample)


def _fuzz(found: Tally, reader: Reader, samples: list[bytes], cases: int, rng: random.Random) -> None:
    for number in range(cases):
        data = mutated(rng.choice(samples), rng)
        start = time.perf_counter()
        try:
            reader(data)
            outcome = "accepted"
        except REFUSALS as error:
            outcome = f"refused: {type(error).__name__}"
        except Exception as error:  # a crash, and what this is about
            outcome = f"crash: {type(error).__name__}"
            found.crashes.append(f"case {number}: {error!r:.200}; {data[:200]!r}")
        found.slowest_seconds = max(found.slowest_seconds, time.perf_counter() - start)
        found.outcomes[outcome] += 1
    found.cases = cases


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


def _readers() -> dict[str, tuple[Reader, list[bytes]]]:
    manifest, _ = read_manifest(GOLDEN)
    files = {name: (GOLDEN / name).read_bytes() for name in (MANIFEST, POSTERIOR, CALIBRATION, MODEL)}
    numbers = np.arange(4, dtype=np.float32).reshape(2, 2)
    entry = {"name": "inputs", "datatype": "FP32", "shape": [2, 2]}
    text = json.dumps({"id": "1", "inputs": [{**entry, "data": numbers.tolist()}]}).encode()
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": 16}}]}).encode()

    def binary(body: bytes) -> Any:
        return array_of(parse_request(body, len(head), BOUNDS).tensors, SPEC, LIMITS)

    return {
        "v2 JSON": (lambda body: array_of(parse_request(body, None, BOUNDS).tensors, SPEC, LIMITS), [text]),
        "v2 binary": (binary, [head + numbers.tobytes()]),
        "JSON": (lambda body: from_json(body, SPEC, LIMITS), [json.dumps({"inputs": numbers.tolist()}).encode()]),
        "npy": (lambda body: from_npy(body, SPEC, LIMITS), [_npy(numbers)]),
        "manifest": (lambda data: manifest_from_bytes(GOLDEN / MANIFEST, data), [files[MANIFEST]]),
        "posterior": (lambda data: posterior_from_bytes(GOLDEN / POSTERIOR, data, manifest), [files[POSTERIOR]]),
        "calibration": (
            lambda data: calibration_from_bytes(GOLDEN / CALIBRATION, data, manifest),
            [files[CALIBRATION]],
        ),
        "graph": (lambda data: extract_subgraph(data, ["mean"]), [files[MODEL]]),
    }


def _npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()
