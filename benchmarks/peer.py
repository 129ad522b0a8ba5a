"""The race against laplace-torch: fit and predict, seconds an example and memory, on four workloads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Entrant
from benchmarks.races import Race, run_race
from benchmarks.settings import Settings, Values
from benchmarks.workloads import Workload

BATCHES, QUICK_BATCHES = (1, 2, 4, 8, 16, 32), (1, 2)
REPETITIONS = 3
MEMORY_GOAL = 5.0
LAST_BLOCK, MINIATURE_LAST_BLOCK = ("layer4.1.", "head."), ("layer2.0.", "head.")


@dataclass(frozen=True)
class Bout:
    """A workload, its miniature, and how many times faster than the peer it is to be."""

    name: str
    workload: Workload
    miniature: Workload
    goal: float


BOUTS = (
    Bout("small CNN, S = 1,000", Workload("small-cnn", 1000), Workload("small-cnn", 100, size="miniature"), 10.0),
    Bout("ResNet-18, S = 2,000 anywhere", Workload("resnet18", 2000), Workload("resnet18", 100, size="miniature"), 7.0),
    Bout(
        "ResNet-18, S = 2,000 in the last block",
        Workload("resnet18", 2000, LAST_BLOCK),
        Workload("resnet18", 100, MINIATURE_LAST_BLOCK, size="miniature"),
        30.0,
    ),
    Bout("BERT, S = 2,000 anywhere", Workload("bert", 2000), Workload("bert", 100, size="miniature"), 7.0),
)


def run(settings: Settings) -> Values:
    """Each race of each bout; the export is made once a workload."""
    races = [(bout, kind) for bout in BOUTS for kind in ("fit", "predict")]
    batches = settings.choose(BATCHES, QUICK_BATCHES)
    found = []
    for bout, kind in settings.track(races, "Races against the peer", len(races)):
        workload = settings.choose(bout.workload, bout.miniature)
        race = Race(f"{bout.name}: {kind}", entrants(settings, workload, kind))
        result = run_race(race, batches, settings.choose(REPETITIONS, 1), settings.threads)
        found.append({**result, "bout": bout.name, "kind": kind, **verdict(result["ratios"], bout.goal)})
    return {"batch_sizes": list(batches), "memory_goal": MEMORY_GOAL, "races": found}


def entrants(settings: Settings, workload: Workload, kind: str) -> tuple[Entrant, ...]:
    """The peer first."""
    values: dict[str, Any] = {"workload": workload.as_json()}
    if kind == "fit":
        return (
            Entrant("laplace-torch", "benchmarks.peer_laplace:Fit", values),
            Entrant("probity", "benchmarks.contenders:Fit", values),
        )
    return (
        Entrant("laplace-torch", "benchmarks.peer_laplace:Predict", values),
        Entrant("probity served", "benchmarks.served:Predict", settings.shelf.get(workload)),
        Entrant("probity eager", "benchmarks.contenders:Predict", values),
    )


def verdict(ratios: Sequence[Values], goal: float) -> Values:
    """Goals are for the first of this project's entrants: the fit, and the served prediction."""
    first = ratios[0]
    return {
        "speed_goal": goal,
        "speed_reached": first["faster"] >= goal,
        "memory_reached": first["less_memory"] >= MEMORY_GOAL,
    }
