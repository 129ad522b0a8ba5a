"""What becomes of a service that a crowd asks for more than it computes: answers for a second of its processor time.

Clients that are refused ask again at once, or after a second, as the answer says (`Retry-After`).
"""

import statistics

from benchmarks.core.settings import Settings, Values
from benchmarks.serving.cpu import features
from benchmarks.serving.fitted import bundle
from benchmarks.serving.process import demur
from benchmarks.serving.tree import processor_seconds
from benchmarks.serving.wrk import saturate

ROWS, FEW, CONNECTIONS = (1, 32, 1024), 4, (4, 48, 256)
THREADS = 2
CLIENTS = {"at once": False, "a second later": True}


def run(settings: Settings) -> Values:
    """By the rows of a request, the clients, and their number: rates of answers with 200 and of refusals a second, and
    `of_few`, answers for a second of processor time over those of few clients in the same round."""
    seconds, count, scratch = settings.choose(4, 1), settings.choose(5, 1), settings.scratch
    found: Values = {}
    with demur(bundle(), scratch / "demur.log", features(1), THREADS) as server:
        for rows in settings.track(ROWS, "Rows of a request", len(ROWS)):
            request = features(rows)
            for clients, patient in CLIENTS.items():
                each: dict[int, list[tuple[float, float, float]]] = {number: [] for number in CONNECTIONS}
                for _ in range(count):
                    for number in CONNECTIONS:
                        before = processor_seconds(server.pid)
                        one = saturate(server, request, seconds, scratch, number, patient=patient)
                        spent = processor_seconds(server.pid) - before
                        each[number].append(
                            (
                                one.requests_per_second,
                                one.errors["status"] / one.seconds,
                                one.requests_per_second * one.seconds / max(spent, 0.01),
                            )
                        )
                found[f"{rows}, {clients}"] = {str(number): _row(each[number], each[FEW]) for number in CONNECTIONS}
    return {"rows": found}


def _row(rounds: list[tuple[float, float, float]], few: list[tuple[float, float, float]]) -> Values:
    answered, refused, efficient = (statistics.median(each) for each in zip(*rounds, strict=True))
    ratio = statistics.median(one[2] / other[2] for one, other in zip(rounds, few, strict=True) if other[2])
    return {
        "answered_per_second": answered,
        "refused_per_second": refused,
        "answered_for_a_processor_second": efficient,
        "of_few": ratio,
        "rounds": rounds,
    }
