"""Every benchmark by name."""

from benchmarks.core.settings import Benchmark
from benchmarks.experiments import drift, evaluate, robustness, scores, table_rejection
from benchmarks.experiments.frontier import plot as frontier_plot
from benchmarks.experiments.frontier import run as frontier
from benchmarks.experiments.guarantees import plot as guarantees_plot
from benchmarks.experiments.guarantees import run as guarantees
from benchmarks.fit import against_laplace, bundles, cost, floor, gpu, growth, layers, price
from benchmarks.fit import plots as fit_plots
from benchmarks.serving import against_servers, contract, fuzz, load, soak
from benchmarks.serving import plots as serving_plots

HOURS = "hours, and data, given or downloaded"
BENCHMARKS = (
    Benchmark(
        "baseline",
        "fit and predict against laplace-torch: seconds per example, memory",
        against_laplace.run,
        fit_plots.against_laplace,
        stem="peer",
    ),
    Benchmark("floor", "Jacobian time over forward time, against 1 + 2 K", floor.run, fit_plots.floor),
    Benchmark("price", "time of a prediction over that of the plain network in onnxruntime", price.run),
    Benchmark("growth", "time and memory of the fit against S, N and D", growth.run, fit_plots.growth),
    Benchmark("cost", "ResNet-18 and 50,000 examples: seconds of each stage, extrapolated", cost.run),
    Benchmark("bundles", "every network at full size: fit, bundle, verification, prediction", bundles.run),
    Benchmark("layers", "every layer of torch.nn alone: exported and compared, or refused and why", layers.run),
    Benchmark("fuzz", "a million damaged requests and bundle files: no crash, no hang, little memory", fuzz.run),
    Benchmark("contract", "thousands of requests by schemathesis: every answer is as the API promises", contract.run),
    Benchmark("gpu", "ResNet-18, 60,000 examples, S = 42,438, selection to bundle; needs cuda", gpu.run, needs="a GPU"),
    Benchmark(
        "load", "the service at saturation, at half load and at three times its capacity", load.run, serving_plots.load
    ),
    Benchmark(
        "servers",
        "the service and LitServe, BentoML, MLServer, FastAPI around the same predictor",
        against_servers.run,
        serving_plots.against_servers,
        stem="peers",
    ),
    Benchmark(
        "soak",
        "ten minutes at 80 % of capacity: vanishing clients, bad requests, replaced bundles",
        soak.run,
        serving_plots.soak,
    ),
    Benchmark(
        "drift",
        "the service's test for drift: false alarms, and delays on MNIST against KS and PSI",
        drift.run,
        threads=1,
        needs="minutes, and data, given or downloaded",
    ),
    Benchmark(
        "guarantees",
        "false-reject rates, certified accuracy, sets and intervals over random splits: do they hold",
        guarantees.run,
        guarantees_plot.draw,
        threads=1,
        needs="minutes, and data, given or downloaded",
    ),
    Benchmark(
        "evaluate",
        "`probity evaluate` and `probity score` on 60,000 digits: time over the plain network's, and memory",
        evaluate.run,
        threads=evaluate.THREADS,
        needs="minutes, and data, given or downloaded",
    ),
    Benchmark(
        "frontier",
        "quality under shift against the price of a prediction, on MNIST, Fashion-MNIST and CIFAR-10",
        frontier.run,
        frontier_plot.draw,
        needs=HOURS,
    ),
    Benchmark(
        "table_rejection",
        "what default bundles of two tables reject: rows scaled, of zeros, with reversed columns",
        table_rejection.run,
        threads=1,
        needs="a minute or two",
    ),
    Benchmark(
        "robustness",
        "added weights with each of their settings varied by a factor of four",
        robustness.run,
        threads=1,
        needs="minutes, and data, given or downloaded",
    ),
    Benchmark(
        "scores",
        "out-of-distribution scores, alone and several as one, on MNIST, Fashion-MNIST and CIFAR-10",
        scores.run,
        threads=1,
        needs="minutes, and data, given or downloaded",
    ),
)
ALL = "all"


def select(name: str) -> list[Benchmark]:
    """The benchmark called `name`, or those that `all` runs; `KeyError` for an unknown name."""
    if name == ALL:
        return [benchmark for benchmark in BENCHMARKS if not benchmark.needs]
    found = [benchmark for benchmark in BENCHMARKS if name in (benchmark.name, benchmark.file)]
    if not found:
        raise KeyError(name)
    return found
