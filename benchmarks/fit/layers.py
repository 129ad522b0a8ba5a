"""Every layer of torch.nn, and functions that networks call, each alone: exported and compared, or refused and why."""

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.core.harness import MeasurementError, call
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.layer_cases import FUNCTIONS, LAYERS, OUTPUTS, Case, network
from probity.offline.export.errors import ExportError
from probity.offline.export.graph import export_jacobian
from probity.offline.jacobian.plain import plain_jacobian
from probity.offline.jacobian.plan import make_jacobian
from probity.offline.jacobian.routes import Chosen
from probity.offline.network.model_copy import check_private, private_copy
from probity.offline.network.weights import WeightLayout
from probity.service.inference.onnx_runtime import onnxruntime

Array = npt.NDArray[Any]
Truth = Callable[[nn.Module, Tensor], tuple[Array, Array]]
CASES = {**LAYERS, **FUNCTIONS}
QUICK = ("SiLU", "FractionalMaxPool2d")
TOLERANCE = 1e-4
CHOSEN = 4  # entries of each parameter
AT_ONCE = 16  # cases a process


def run(settings: Settings) -> Values:
    """Run the cases in groups, a fresh process per group; a crash is recorded."""
    names = settings.names(tuple(CASES), QUICK)
    parts = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
    rows: list[Values] = []
    for part in settings.track(parts, "Layers", len(parts)):
        try:
            rows += call("benchmarks.fit.layers:some", {"names": part}, settings.threads)["rows"]
        except MeasurementError as error:
            rows += [{"layer": name, "outcome": "failed", "why": str(error)} for name in part]
    rows = settings.with_earlier("layers.json", "layer", rows, tuple(CASES))
    counts = {outcome: sum(row["outcome"] == outcome for row in rows) for outcome in ("exported", "refused", "failed")}
    return {**counts, "rows": rows}


def some(values: dict[str, Any]) -> Values:
    return {"rows": [one(name) for name in values["names"]]}


def one(name: str) -> Values:
    """Whether the case is exported correctly, or refused exactly when it should be."""
    start, case = time.perf_counter(), CASES[name]
    try:
        error = relative_error(case, differentiated)
        right = error < TOLERANCE and case.refusal is None
        outcome: Values = {"outcome": "exported" if right else "failed", "relative_error": error}
    except (ExportError, ValueError) as refused:
        expected = case.refusal is not None and re.search(case.refusal, str(refused))
        outcome = {"outcome": "refused" if expected else "failed", "why": str(refused)}
    return {"layer": name, **outcome, "seconds": time.perf_counter() - start}


def relative_error(case: Case, truth: Truth) -> float:
    """The largest of mean and Jacobian, with three examples and with one; relative to the largest entry.

    Weights of a Linear below the layer, of the layer itself and of a Linear above.
    """
    model, inputs = network(case)
    graph, indices = export(model, inputs)
    mean, jacobian = truth(model, inputs)
    expected = {"mean": mean, "jacobian": jacobian[:, :, indices]}
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    errors = []
    for rows in (slice(0, 3), slice(1, 2)):
        found = session.run(list(expected), {"inputs": inputs[rows].numpy()})
        errors += [np.abs(f - e[rows]).max() / np.abs(e).max() for f, e in zip(found, expected.values(), strict=True)]
    return float(np.max(errors))


def export(model: nn.Module, inputs: Tensor) -> tuple[bytes, Array]:
    """The graph and the positions of the chosen weights; raises as a fit does."""
    copied = private_copy(model, torch.device("cpu"))
    check_private(model, copied, inputs)
    layout, generator = WeightLayout.of(model), np.random.default_rng(0)
    chosen = [
        parameter.offset + np.sort(generator.choice(parameter.size, min(CHOSEN, parameter.size), replace=False))
        for parameter in layout.parameters
    ]
    indices = np.concatenate(chosen)
    graph, _ = export_jacobian(make_jacobian(copied, layout, torch.as_tensor(indices), inputs), inputs, OUTPUTS)
    return graph, indices


def differentiated(model: nn.Module, inputs: Tensor) -> tuple[Array, Array]:
    """Mean (B, K) and Jacobian (B, K, D) by plain differentiation in float64."""
    copied, layout = private_copy(model, torch.device("cpu"), torch.float64), WeightLayout.of(model)
    every = tuple(Chosen(parameter, torch.arange(parameter.size)) for parameter in layout.parameters)
    return copied(inputs.double()).numpy(), plain_jacobian(copied, every, inputs.double()).numpy()
