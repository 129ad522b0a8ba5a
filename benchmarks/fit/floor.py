"""How far the Jacobian's time is from its floor: 1 + 2 K forward passes for weights anywhere in the network.

One forward pass, and K backward passes that cost two forward passes each: one towards the layer's input, one towards
its weights (an upper bound where few weights are chosen).
"""

from typing import Any

from benchmarks.core.harness import Measurement, MethodSpec, take_turns
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.exports import exported
from benchmarks.fit.workloads import Workload

BATCHES, QUICK_BATCHES = (1, 4, 16), (1, 2)
REPETITIONS = 5
GOAL = 1.5
WORKLOAD, MINIATURE = Workload("resnet18", 2000), Workload("resnet18", 100, size="miniature")


def run(settings: Settings) -> Values:
    """Forward and Jacobian taking turns, in torch and in onnxruntime, at each batch size."""
    workload = settings.choose(WORKLOAD, MINIATURE)
    made = exported(settings, workload)
    outputs = workload.spec.outputs
    floor = 1 + 2 * outputs
    rows = []
    sizes = settings.choose(BATCHES, QUICK_BATCHES)
    for batch in settings.track(sizes, "Jacobian against forward", len(sizes)):
        repetitions = settings.choose(REPETITIONS, 1)
        measured = take_turns(methods(made), [batch] * 4, repetitions, settings.threads)
        rows += [row(engine, batch, measured[2 * i], measured[2 * i + 1], floor) for i, engine in enumerate(ENGINES)]
    return {"workload": workload.name, "outputs": outputs, "floor": floor, "goal": GOAL, "rows": rows}


ENGINES = ("torch", "onnxruntime")


def methods(made: dict[str, Any]) -> tuple[MethodSpec, ...]:
    return tuple(
        MethodSpec(f"{kind.lower()}, {engine}", f"benchmarks.fit.{module}:{kind}", made)
        for engine, module in zip(ENGINES, ("methods", "onnx_methods"), strict=True)
        for kind in ("Forward", "Jacobian")
    )


def row(engine: str, batch: int, forward: Measurement, jacobian: Measurement, floor: int) -> Values:
    """Jacobian time over forward time, and that over the floor."""
    ratio = jacobian.median / forward.median
    return {
        "engine": engine,
        "batch": batch,
        "forward": forward.as_json(),
        "jacobian": jacobian.as_json(),
        "ratio": ratio,
        "ratio_rounds": [j / f for j, f in zip(jacobian.seconds, forward.seconds, strict=True)],
        "over_floor": ratio / floor,
        "reached": ratio <= GOAL * floor,
    }
