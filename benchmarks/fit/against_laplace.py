"""Fit and predict against laplace-torch: seconds per example and memory, on four workloads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.core.comparison import Comparison, compare
from benchmarks.core.harness import MethodSpec
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.exports import served
from benchmarks.fit.workloads import Workload

BATCHES, QUICK_BATCHES = (1, 2, 4, 8, 16, 32), (1, 2)
REPETITIONS = 3
MEMORY_GOAL = 5.0
LAST_BLOCK, MINIATURE_LAST_BLOCK = ("layer4.1.", "head."), ("layer2.0.", "head.")


@dataclass(frozen=True)
class Scenario:
    """A workload, its miniature, and the goal: how many times faster than the baseline."""

    name: str
    workload: Workload
    miniature: Workload
    goal: float


SCENARIOS = (
    Scenario("small CNN, S = 1,000", Workload("small-cnn", 1000), Workload("small-cnn", 100, size="miniature"), 10.0),
    Scenario(
        "ResNet-18, S = 2,000 anywhere", Workload("resnet18", 2000), Workload("resnet18", 100, size="miniature"), 7.0
    ),
    Scenario(
        "ResNet-18, S = 2,000 in the last block",
        Workload("resnet18", 2000, LAST_BLOCK),
        Workload("resnet18", 100, MINIATURE_LAST_BLOCK, size="miniature"),
        30.0,
    ),
    Scenario("BERT, S = 2,000 anywhere", Workload("bert", 2000), Workload("bert", 100, size="miniature"), 7.0),
)


def run(settings: Settings) -> Values:
    """Fit and predict of each scenario."""
    pairs = [(scenario, kind) for scenario in SCENARIOS for kind in ("fit", "predict")]
    batches = settings.choose(BATCHES, QUICK_BATCHES)
    found = []
    for scenario, kind in settings.track(pairs, "Against laplace-torch", len(pairs)):
        workload = settings.choose(scenario.workload, scenario.miniature)
        comparison = Comparison(f"{scenario.name}: {kind}", methods(settings, workload, kind))
        result = compare(comparison, batches, settings.choose(REPETITIONS, 1), settings.threads)
        found.append({**result, "bout": scenario.name, "kind": kind, **verdict(result["ratios"], scenario.goal)})
    return {"batch_sizes": list(batches), "memory_goal": MEMORY_GOAL, "races": found}


def methods(settings: Settings, workload: Workload, kind: str) -> tuple[MethodSpec, ...]:
    """laplace-torch first, as the baseline."""
    values: dict[str, Any] = {"workload": workload.as_json()}
    if kind == "fit":
        return (
            MethodSpec("laplace-torch", "benchmarks.fit.laplace_torch:Fit", values),
            MethodSpec("probity", "benchmarks.fit.methods:Fit", values),
        )
    return (
        MethodSpec("laplace-torch", "benchmarks.fit.laplace_torch:Predict", values),
        MethodSpec("probity served", "benchmarks.fit.onnx_methods:Predict", served(settings, workload)),
        MethodSpec("probity eager", "benchmarks.fit.methods:Predict", values),
    )


def verdict(ratios: Sequence[Values], goal: float) -> Values:
    """Whether the fit, or the served prediction, reaches the goals."""
    first = ratios[0]
    return {
        "speed_goal": goal,
        "speed_reached": first["faster"] >= goal,
        "memory_reached": first["less_memory"] >= MEMORY_GOAL,
    }
