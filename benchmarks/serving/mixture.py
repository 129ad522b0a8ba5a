"""The requests of the long run: good ones, disconnecting clients, malformed ones, and the status expected for each."""

import json
from dataclasses import dataclass, replace

from benchmarks.serving.digits import INFER, PREDICT, Request
from benchmarks.serving.outcomes import OK

VANISH_SECONDS = 0.002
HEALTH = "health"


@dataclass(frozen=True)
class Part:
    """A kind of request in the mixture, with the status it is meant to get."""

    name: str
    wire: bytes
    share: float
    expected: int = OK
    vanish_seconds: float | None = None


def parts(good: list[Request]) -> list[Part]:
    """Five of six requests are good ones; the others leave, break off, or are malformed in many ways, scrape the
    metrics, with and without waiting for them, or ask for health."""
    shares = (0.45, 0.2, 0.18)
    mixture = [Part(one.name, one.wire(), share) for one, share in zip(good, shares, strict=True)]
    whole = good[0].wire()
    mixture.append(Part("vanishes after sending", whole, 0.03, vanish_seconds=VANISH_SECONDS))
    mixture.append(Part("vanishes within the body", whole[: len(whole) // 2], 0.02, vanish_seconds=VANISH_SECONDS))
    mixture.append(Part("scrapes and vanishes", get("/metrics"), 0.04, vanish_seconds=VANISH_SECONDS))
    mixture.append(Part("scrapes", get("/metrics"), 0.01))
    mixture.append(Part(HEALTH, get("/health/ready"), 0.02))
    bad = malformed(good[0])
    return mixture + [Part(one.name, one.wire(), 0.05 / len(bad), status) for one, status in bad]


def get(path: str) -> bytes:
    """A request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def malformed(whole: Request) -> list[tuple[Request, int]]:
    """Requests with something wrong, and the status that each is meant to get."""
    infinite = json.dumps({"inputs": [[[1e39] * 8] * 8]}).encode()
    return [
        (Request("not JSON", PREDICT, b'{"inputs": ['), 400),
        (Request("unknown field", PREDICT, b'{"input": [1]}'), 422),
        (Request("wrong shape", PREDICT, b'{"inputs": [[1, 2, 3]]}'), 422),
        (Request("not finite", PREDICT, infinite), 422),
        (Request("not base64", PREDICT, b'{"images": ["***"]}'), 422),
        (Request("not an image", PREDICT, b'{"images": ["aGVsbG8="]}'), 422),
        (Request("wrong media type", PREDICT, b"a,b", headers=(("Content-Type", "text/csv"),)), 415),
        (Request("unknown model", "/v2/models/letters/infer", b"{}"), 404),
        (Request("wrong output", INFER, b'{"inputs": [], "outputs": [{"name": "x"}]}'), 422),
        (replace(whole, name="cut tensor", body=whole.body[:-4]), 422),
    ]
