"""Standalone models of bundles of every kind, and how to compare one with the predictor."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnxscript import ir

from demur.offline import FitConfig, fit_bundle
from demur.offline.export.standalone.file import export_standalone
from demur.offline.export.standalone.nodes import MIN_OPSET, NodeBuilder
from demur.offline.export.standalone.verify import open_model
from demur.service import InputSpec
from demur.service.inference.predictor import Prediction
from tests.support.added import write_added
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC, IR_VERSION, Synthetic, write_linear, write_tokens
from tests.support.cases import CASES
from tests.support.server import ROOT

Array = npt.NDArray[Any]


def moved(synthetic: Synthetic, out: Path) -> None:
    """The bundle of a synthetic network, in another place."""
    synthetic.path.rename(out)


GOLDEN = {f"golden-{path.name}": path / "bundle" for path in sorted((ROOT / "tests/golden").glob("v*"))}
VECTOR = InputSpec(shape=(3,))
SYNTHETIC: dict[str, Callable[[Path], Any]] = {
    "features": lambda out: write_linear(out, outputs=3, spec=FEATURE_SPEC),
    "two-classes": lambda out: write_linear(out, outputs=2, spec=FEATURE_SPEC, seed=4),
    "images": lambda out: write_linear(out, outputs=3, spec=IMAGE_SPEC, size=8, seed=1, alpha=0.2),
    "temperature": lambda out: write_linear(out, outputs=3, spec=FEATURE_SPEC, temperature=2.5),
    "regression": lambda out: write_linear(out, outputs=2, spec=VECTOR, regression=True, seed=2),
    "one-output": lambda out: write_linear(out, outputs=1, spec=VECTOR, size=3, regression=True, seed=3),
    "tokens": write_tokens,
    "added": lambda out: moved(write_added(out.with_name("parts")), out),
    "added-distance": lambda out: moved(write_added(out.with_name("parts"), calibration={"score": "distance"}), out),
    "added-regression": lambda out: moved(write_added(out.with_name("parts"), regression=True), out),
}
# Derivatives of whole layers and of single parameters (a loop), and of a linear head alone.
FITTED: dict[str, tuple[str, dict[str, Any]]] = {
    "fitted": ("batchnorm-cnn-classification-10", {"selection": "random"}),
    "fitted-head": ("mlp-regression-2", {"selection": "last-layer"}),
}
BUNDLES = (*GOLDEN, *SYNTHETIC, *FITTED)


@dataclass(frozen=True)
class Exported:
    """A bundle and the standalone model made from it."""

    bundle: Path
    model: Path

    @classmethod
    def of(cls, bundle: Path, model: Path) -> "Exported":
        """Export the bundle."""
        export_standalone(bundle, model)
        return cls(bundle, model)


def make_bundle(name: str, out: Path) -> Path:
    """The bundle of this name in `BUNDLES`."""
    if name in GOLDEN:
        shutil.copytree(GOLDEN[name], out)
    elif name in SYNTHETIC:
        SYNTHETIC[name](out)
    else:
        _fit(*FITTED[name], out)
    return out


def _fit(case_name: str, options: dict[str, Any], out: Path) -> None:
    (case,) = (case for case in CASES if case.name == case_name)
    config = FitConfig(
        likelihood=case.likelihood,
        subnetwork_size=20 if case.outputs > 1 else 8,
        prior_precision=1.0,
        false_reject_rate=0.1,
        device="cpu",
        **options,
    )
    train, held_out = case.batches(40, 10), case.batches(30, 10, seed=1)
    fit_bundle(case.model(), train, out, calibration_loader=held_out, config=config)


def example_batches(spec: InputSpec) -> list[Array]:
    """One example, several, many, and some whose outputs are very large, infinite or NaN."""
    rng = np.random.default_rng(0)
    if spec.dtype == "int64":
        return [rng.integers(0, 5, (count, *spec.shape)) for count in (1, 30)]
    batches = [
        rng.normal(scale=scale, size=(count, *spec.shape)) for count, scale in ((1, 1), (8, 0.1), (70, 2), (5, 1e6))
    ]
    hostile = np.stack([np.full(spec.shape, value) for value in (0.0, np.nan, np.inf, -np.inf, 3e38)])
    return [batch.astype(np.float32) for batch in (*batches, hostile)]


def same_prediction(found: dict[str, Array], expected: Prediction, rtol: float = 1e-5) -> None:
    """The same values in the same types and shapes, and exactly the same decision.

    Values of one example are compared relative to its largest, since one of several logits may be near 0 by
    cancellation, and entropies near 0 absolutely: they are rounding errors.
    """
    fields = {name for name, values in vars(expected).items() if values is not None}
    assert fields - {"out_of_range", "leading", "mistake", "names", "multilabel"} == found.keys()
    for name, values in found.items():
        wanted = getattr(expected, name)
        assert (values.dtype, values.shape) == (wanted.dtype, wanted.shape), name
        if name in ("p_value", "rejected"):
            np.testing.assert_array_equal(values, wanted, err_msg=name)
            continue
        for example, row in zip(np.atleast_1d(values), np.atleast_1d(wanted), strict=True):
            largest = np.abs(np.where(np.isfinite(row), row, 0)).max()
            atol = 1e-12 + rtol * largest
            np.testing.assert_allclose(example, row, rtol=rtol, atol=atol, equal_nan=True, err_msg=name)


def run_nodes(build: Callable[..., dict[str, ir.Value]], **inputs: Array) -> dict[str, Array]:
    """The values that `build` names, from a graph with the inputs of these names and any batch size."""
    values = [
        ir.val(name, dtype=ir.DataType.from_numpy(array.dtype), shape=["batch", *array.shape[1:]])
        for name, array in inputs.items()
    ]
    graph = ir.Graph(values, [], nodes=[], name="nodes", opset_imports={"": MIN_OPSET})
    add = NodeBuilder(graph)
    outputs = build(add, *values)
    for name, value in outputs.items():
        output = add("Identity", value)  # an input cannot be an output as well
        output.name = name
        graph.outputs.append(output)
    model = ir.to_proto(ir.Model(graph, ir_version=IR_VERSION))
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    onnx.checker.check_model(inferred)
    session = open_model(inferred.SerializeToString())
    return dict(zip(outputs, session.run(list(outputs), inputs), strict=True))
