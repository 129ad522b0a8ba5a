"""What fitting ResNet-18 on CIFAR-sized data costs: seconds of each stage, measured on a few hundred examples.

Stages that pass over the data are extrapolated in proportion to N, and are marked so; the scores of `auto` look at a
sample of fixed size; the others do not depend on N.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.core.harness import call
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.methods import CPU, PRIOR, jacobian_of
from benchmarks.fit.workloads import Workload
from offline.config import FitConfig
from offline.data.likelihood import Classification
from offline.data.loaders import Passes
from offline.export.graph import export_jacobian
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.plan import make_jacobian
from offline.job import prepare
from offline.laplace.ggn import accumulate_ggn, add_squares
from offline.laplace.posterior import Spectrum, factor, posterior_precision
from offline.network.model_copy import private_copy
from offline.network.weights import WeightLayout
from offline.runtime.distributed import DistributedContext
from offline.runtime.progress import one_step, silent
from offline.selection.context import SelectionContext
from offline.selection.live_weights import curvature_estimate
from offline.selection.sample import SCORE_EXAMPLES as SAMPLED_EXAMPLES
from offline.selection.strategies.novelty import NOVELTY_EXAMPLES

WORKLOAD, MINIATURE = Workload("resnet18", 2000), Workload("resnet18", 100, size="miniature")
BATCH, SCORE_ROWS = 16, 4
MEMORY = 4 * 2**30
LIVE_EXAMPLES, SCORE_EXAMPLES, CURVATURE_EXAMPLES, QUICK_EXAMPLES = 320, 64, 320, 32
EXTRAPOLATED = (50_000, 60_000)
# `auto` scores by "gradient", and by "novelty-sampling" once as they are and once for each of six shifts.
SCORED = SAMPLED_EXAMPLES + 7 * NOVELTY_EXAMPLES
TOTALS = ("live weights", "scores", "curvature", "spectrum", "factor", "export")


def run(settings: Settings) -> Values:
    """Measure every stage in one process, as in a real fit."""
    workload = settings.choose(WORKLOAD, MINIATURE)
    values = {
        "workload": workload.as_json(),
        "live_examples": settings.choose(LIVE_EXAMPLES, QUICK_EXAMPLES),
        "score_examples": settings.choose(SCORE_EXAMPLES, QUICK_EXAMPLES),
        "curvature_examples": settings.choose(CURVATURE_EXAMPLES, QUICK_EXAMPLES),
    }
    stages = one_step(settings.track, "Stages", lambda: call("benchmarks.fit.cost:measure", values, settings.threads))
    return {
        "workload": workload.name,
        "stages": stages,
        "extrapolated": {str(count): extrapolate(stages, count) for count in EXTRAPOLATED},
        "note": "seconds for N examples are extrapolated from `examples_measured`; no pass over N examples was made",
    }


def extrapolate(stages: dict[str, Values], count: int) -> Values:
    """Seconds of each stage and of all for `count` examples."""
    seconds = {name: stage_seconds(stages[name], SCORED if name == "scores" else count) for name in TOTALS}
    return {"extrapolated": True, "seconds": seconds, "total_seconds": sum(seconds.values())}


def stage_seconds(stage: Values, count: int) -> float:
    if "median_seconds_per_example" in stage:
        return float(stage["median_seconds_per_example"]) * count
    return float(stage["seconds"])


def measure(values: dict[str, Any]) -> dict[str, Values]:
    """In a fresh process: the stages of `fit_bundle`, one after the other."""
    torch.set_num_threads(values["threads"])
    workload = Workload.of(values["workload"])
    model, (inputs, targets), outputs = workload.model(), workload.data(), workload.spec.outputs
    everything, plan_all = timed(lambda: jacobian_of_all(model, inputs))
    jacobian, plan = timed(lambda: jacobian_of(workload, model, inputs))
    batch = inputs[:BATCH], targets[:BATCH]

    def score() -> Tensor:
        sums = torch.zeros(everything.size, dtype=torch.float64)
        for rows in torch.split(batch[0], SCORE_ROWS):
            add_squares((block for _, block in everything.blocks(rows)[1]), sums)
        return sums

    def curve() -> Tensor:
        return accumulate_ggn(jacobian, [batch], Classification(outputs)).ggn

    alive = live_weights(context_of(workload, model, batch), values["live_examples"] // BATCH)
    scores = per_example(score, values["score_examples"] // BATCH)
    curvature = per_example(curve, values["curvature_examples"] // BATCH)
    ggn = curve()
    _, spectrum = timed(lambda: Spectrum.of(ggn))
    _, factored = timed(lambda: factor(posterior_precision(ggn, PRIOR)))
    _, export = timed(lambda: export_jacobian(jacobian, inputs, outputs))
    scores["what"] = f"the squared Jacobian in all D weights, streamed; `auto` takes it of {SCORED} inputs"
    return {
        "plan of all weights": {"seconds": plan_all},
        "plan": {"seconds": plan},
        "live weights": alive,
        "scores": scores,
        "curvature": curvature,
        "spectrum": {"seconds": spectrum},
        "factor": {"seconds": factored},
        "export": {"seconds": export},
    }


def jacobian_of_all(model: torch.nn.Module, inputs: Tensor) -> SubnetworkJacobian:
    layout = WeightLayout.of(model)
    return make_jacobian(private_copy(model, CPU), layout, torch.arange(layout.total), inputs[:2])


def live_weights(context: SelectionContext, batches: int) -> Values:
    """Seconds an example of one pass over so many batches; what a pass does once is left out."""
    several = replace(context.job, train=list(context.job.train) * (1 + batches), passes=Passes("train_loader"))
    curvature_estimate(context)  # first use
    _, once = timed(lambda: curvature_estimate(context))
    _, whole = timed(lambda: curvature_estimate(replace(context, job=several)))
    examples = BATCH * batches
    return {"batch": BATCH, "examples_measured": examples, "median_seconds_per_example": (whole - once) / examples}


def context_of(workload: Workload, model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> SelectionContext:
    """What `auto` has when it looks for live weights."""
    config = FitConfig(subnetwork_size=workload.weights, prior_precision=PRIOR)
    job = prepare(model, [batch], config, CPU, DistributedContext(), silent)
    return SelectionContext(job, workload.weights, torch.arange(job.layout.total), MEMORY)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def per_example(work: Callable[[], Tensor], repetitions: int) -> Values:
    """Seconds an example for each batch, after one batch of warm-up."""
    work()
    seconds = [timed(work)[1] / BATCH for _ in range(max(1, repetitions))]
    return {
        "batch": BATCH,
        "examples_measured": BATCH * len(seconds),
        "seconds_per_example": seconds,
        "median_seconds_per_example": statistics.median(seconds),
    }
