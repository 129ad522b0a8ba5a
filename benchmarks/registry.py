"""Every benchmark by name."""

from benchmarks.core.command import Program
from benchmarks.core.folders import RESULTS
from benchmarks.core.settings import Benchmark
from benchmarks.experiments import drift, robustness, scores, versions
from benchmarks.experiments.files import run as files
from benchmarks.experiments.frontier import plot as frontier_plot
from benchmarks.experiments.frontier import run as frontier
from benchmarks.experiments.guarantees import run as guarantees
from benchmarks.experiments.regression import run as regression
from benchmarks.experiments.strangers import run as strangers
from benchmarks.fit import against_laplace, bundles, price
from benchmarks.serving import against_servers, bulk, cpu, crowd, fair, load, playground, rpc, shadow, soak, texts
from benchmarks.serving.clients import run as clients
from benchmarks.serving.day import draw as day_draw
from benchmarks.serving.day import run as day

HOURS = "hours, and data, given or downloaded"
BENCHMARKS = (
    Benchmark("baseline", "fit and predict against laplace-torch: seconds per example, memory", against_laplace.run),
    Benchmark("price", "time of a prediction over that of the plain network in onnxruntime", price.run),
    Benchmark("bundles", "every network at full size: fit, bundle, verification, prediction", bundles.run),
    Benchmark("load", "the service at saturation and at half load", load.run),
    Benchmark(
        "servers",
        "the service and LitServe, BentoML, MLServer, FastAPI around the same predictor",
        against_servers.run,
    ),
    Benchmark("cpu", "processor time for an example, and requests a second beside FastAPI", cpu.run),
    Benchmark(
        "crowd", "more clients than the service can answer: what it still gets done", crowd.run, needs="two minutes"
    ),
    Benchmark("texts", "texts to the service, and to FastAPI around the plain network", texts.run),
    Benchmark("rpc", "gRPC and HTTP at saturation and at 70 % of it, with one worker and two", rpc.run, needs="h2load"),
    Benchmark("bulk", "Ray Data with one actor and two beside demur score: rows a second", bulk.run, needs="Ray"),
    Benchmark("fair", "a network beside another one that is asked without a pause", fair.run),
    Benchmark("shadow", "latencies with a version in the shadow and without, in turns", shadow.run),
    Benchmark(
        "versions",
        "how soon the metrics of a shadow tell a worse version",
        versions.run,
        threads=1,
        needs="a minute",
    ),
    Benchmark(
        "soak",
        "ten minutes at 80 % of capacity: vanishing clients, bad requests, replaced bundles",
        soak.run,
    ),
    Benchmark(
        "day",
        "a million requests to two replicas over a simulated day: what is seen, what fires, what it takes in memory",
        day.run,
        day_draw.draw,
        needs="prometheus, promtool, and a quarter of an hour",
    ),
    Benchmark(
        "clients",
        "the clients of Triton and KServe, over HTTP and gRPC: what works",
        clients.run,
        needs="packages of the index, and a minute",
    ),
    Benchmark(
        "playground", "from a stroke to the updated answer in a browser", playground.run, needs="Chromium, and seconds"
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
        threads=1,
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
        "strangers",
        "plain network, temperature and default on data that was not chosen for a strength, and on rare events",
        strangers.run,
        threads=1,
        needs="minutes, and packages of the index",
    ),
    Benchmark(
        "files",
        "networks in ONNX that other people made: what is found in them, and how they are served",
        files.run,
        threads=1,
        needs="half an hour, packages of the index, and skl2onnx, onnxmltools, lightgbm, xgboost",
    ),
    Benchmark(
        "regression",
        "intervals of regressions: one noise for all, the default's by the input, and MAPIE's",
        regression.run,
        threads=1,
        needs="minutes, and data, given or downloaded",
    ),
    Benchmark(
        "robustness",
        "the default with its constants varied, and with fewer, uneven and mislabelled examples",
        robustness.run,
        threads=1,
        needs=HOURS,
    ),
    Benchmark(
        "scores",
        "out-of-distribution scores, alone and several as one, on MNIST, Fashion-MNIST and CIFAR-10",
        scores.run,
        threads=1,
        needs="minutes, and data, given or downloaded",
    ),
)
PROGRAM = Program("benchmarks", BENCHMARKS, RESULTS)
