"""Small synthetic bundles, written without torch: a linear network whose derivatives have a closed form.

mean = W x + b and the trainable weights are W (row by row), then b. The chosen weights are a few of those, so that
d mean_k / d W[j, i] = x_i where j = k, and d mean_k / d b[j] = 1 where j = k.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from demur.service.bundle import (
    CalibrationTensors,
    CholeskyPosterior,
    ImagePreprocessing,
    InputPart,
    InputSpec,
    InputText,
    Manifest,
    read_bundle,
    write_bundle,
)
from demur.service.inference.graph import CHUNK_BYTES
from demur.service.maths.outcomes import ClassOutcomes, LabelOutcomes, Outcomes, RegressionOutcomes, Verdicts
from tests.support.manifests import OPSET, make_manifest
from tests.support.manifests import slow_threshold as slow_threshold

Array = npt.NDArray[Any]
IR_VERSION = 10


@dataclass(frozen=True)
class Synthetic:
    """A linear network with a posterior over some of its weights, everything in float32, and its bundle on disk."""

    path: Path
    manifest: Manifest
    weight: Array
    bias: Array
    posterior: CholeskyPosterior
    indices: Array
    scores: Array

    @property
    def alpha(self) -> float:
        return self.manifest.calibration.false_reject_rate

    def mean(self, inputs: Array) -> Array:
        flat = np.asarray(inputs, np.float64).reshape(len(inputs), -1)
        return flat @ self.weight.astype(np.float64).T + self.bias

    def jacobian(self, inputs: Array) -> Array:
        """(B, K, S), entry by entry."""
        flat = np.asarray(inputs, np.float64).reshape(len(inputs), -1)
        outputs, width = self.weight.shape
        jacobian = np.zeros((len(flat), outputs, len(self.indices)))
        for example, x in enumerate(flat):
            for column, index in enumerate(self.indices):
                if index < outputs * width:
                    jacobian[example, index // width, column] = x[index % width]
                else:
                    jacobian[example, index - outputs * width, column] = 1.0
        return jacobian

    def variance(self, inputs: Array) -> Array:
        """diag(J Sigma J^T), (B, K), with the covariance written out."""
        covariance = dense_covariance(self.posterior)
        return np.stack([np.diag(j @ covariance @ j.T) for j in self.jacobian(inputs)])


def dense_covariance(posterior: CholeskyPosterior) -> Array:
    """Sigma (S, S), float64, as its definition says."""
    factor = posterior.scale_tril.astype(np.float64)
    return factor @ factor.T


def draw_cholesky(rng: np.random.Generator, size: int) -> CholeskyPosterior:
    scale_tril = np.tril(rng.normal(scale=0.3, size=(size, size))).astype(np.float32)
    scale_tril[np.diag_indices(size)] = rng.uniform(0.2, 0.6, size).astype(np.float32)
    return CholeskyPosterior(scale_tril)


def linear_graph(
    weight: Array, bias: Array, indices: Array, shape: tuple[int, ...], posterior: CholeskyPosterior
) -> onnx.GraphProto:
    """inputs (B, *shape) -> mean (B, K), and variance (B, K) as the squared length of constant matrix products."""
    outputs, width = weight.shape
    size = len(indices)
    slope, offset = np.zeros((width, outputs, size), np.float32), np.zeros((outputs, size), np.float32)
    for column, index in enumerate(indices):
        if index < outputs * width:
            slope[index % width, index // width, column] = 1.0
        else:
            offset[index - outputs * width, column] = 1.0
    constants = {
        "weight": weight.T,
        "bias": bias,
        "slope": slope.reshape(width, outputs * size),
        "offset": offset.reshape(-1),
        "flat_shape": np.array([-1, width], np.int64),
        "jacobian_shape": np.array([-1, outputs, size], np.int64),
        "root": posterior.scale_tril,
    }
    nodes = [
        helper.make_node("Reshape", ["inputs", "flat_shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weight"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["mean"]),
        helper.make_node("MatMul", ["flat", "slope"], ["steep"]),
        helper.make_node("Add", ["steep", "offset"], ["flat_jacobian"]),
        helper.make_node("Reshape", ["flat_jacobian", "jacobian_shape"], ["jacobian"]),
        helper.make_node("MatMul", ["jacobian", "root"], ["projected"]),
        helper.make_node("Einsum", ["projected", "projected"], ["variance"], equation="bks,bks->bk"),
    ]
    return helper.make_graph(
        nodes,
        "linear",
        [value_info("inputs", ("batch", *shape))],
        [value_info("mean", ("batch", outputs)), value_info("variance", ("batch", outputs))],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
    )


def graph_of(synthetic: Synthetic) -> onnx.GraphProto:
    """The graph of its bundle."""
    shape = synthetic.manifest.input.shape
    return linear_graph(synthetic.weight, synthetic.bias, synthetic.indices, shape, synthetic.posterior)


def value_info(name: str, shape: tuple[int | str, ...], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def model_bytes(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def write_linear(
    out: Path,
    *,
    outputs: int,
    spec: InputSpec,
    size: int = 6,
    regression: bool = False,
    several: bool = False,
    seed: int = 0,
    examples: int = 40,
    tokenizer: bytes | None = None,
    **changes: Any,
) -> Synthetic:
    """Draw a linear network from `seed` and write its bundle to `out`."""
    rng = np.random.default_rng(seed)
    width = math.prod(spec.shape)
    weight = rng.normal(size=(outputs, width)).astype(np.float32)
    bias = rng.normal(size=outputs).astype(np.float32)
    parameter_count = outputs * (width + 1)
    indices = np.sort(rng.choice(parameter_count, size, replace=False)).astype(np.int64)
    posterior = draw_cholesky(rng, size)
    high = 1.0 if regression else math.log(outputs)
    scores = np.sort(rng.uniform(0.05, 0.8 * high, examples))
    manifest = make_manifest(
        outputs=outputs,
        parameter_count=parameter_count,
        size=size,
        spec=spec,
        scores=scores,
        regression=regression,
        several=several,
        **changes,
    )
    write_bundle(
        out,
        manifest,
        model=model_bytes(linear_graph(weight, bias, indices, spec.shape, posterior)),
        posterior=posterior,
        subnetwork_indices=indices,
        calibration=CalibrationTensors(scores, even_outcomes(scores, outputs, regression, several)),
        tokenizer=tokenizer,
    )
    return Synthetic(out, manifest, weight, bias, posterior, indices, scores)


def even_outcomes(scores: Array, outputs: int, regression: bool = False, several: bool = False) -> Outcomes:
    """Outcomes without chance: the classes take turns, and every prediction is right; residuals from 0 to 2."""
    n = len(scores)
    if regression:
        return RegressionOutcomes(np.tile(np.linspace(0, 2, n)[:, np.newaxis], (1, outputs)))
    if several:
        sets = np.linspace(0.1, 1, n)[:, np.newaxis] / np.arange(1, outputs + 1)
        return LabelOutcomes(Verdicts(np.sort(scores), np.zeros(n, np.int32), np.ones(n, bool)), sets, None)
    verdicts = Verdicts(np.sort(scores), np.arange(n, dtype=np.int32) % outputs, np.ones(n, bool))
    return ClassOutcomes(verdicts, np.linspace(0.1, 1, n), None)


def rewrite(source: Path, out: Path, **changes: Any) -> Path:
    """Write a copy of the bundle at `source` to `out`, with some arguments of `write_bundle` changed."""
    bundle = read_bundle(source)
    parts: dict[str, Any] = {
        "manifest": bundle.manifest,
        "model": bundle.model,
        "posterior": bundle.posterior,
        "subnetwork_indices": bundle.subnetwork_indices,
        "calibration": bundle.calibration,
        "tokenizer": bundle.tokenizer,
    }
    return write_bundle(out, **(parts | changes))


def in_chunks(source: Path, out: Path, rows: int) -> Path:
    """A copy of a bundle whose graph takes so much memory that a predictor computes `rows` examples at once."""
    manifest = read_bundle(source).manifest
    graph = dataclasses.replace(manifest.graph, row_numbers=CHUNK_BYTES // 4 // rows)
    return rewrite(source, out, manifest=dataclasses.replace(manifest, graph=graph))


def write_tokens(out: Path, vocabulary: int = 5, length: int = 2) -> Synthetic:
    """A network with token inputs: mean = the sum of the tokens' rows in a table; the derivatives are constant."""
    rng = np.random.default_rng(3)
    table, scores = rng.normal(size=(vocabulary, 2)).astype(np.float32), np.linspace(0.1, 0.6, 20)
    jacobian = np.tile(np.array([[0.5, 0.1]], np.float32), (vocabulary, 2))
    nodes = [
        helper.make_node("Gather", ["table", "inputs"], ["rows"]),
        helper.make_node("ReduceSum", ["rows", "axis"], ["mean"], keepdims=0),
        helper.make_node("Gather", ["slope", "inputs"], ["steep"]),
        helper.make_node("ReduceSum", ["steep", "axis"], ["flat"], keepdims=0),
        helper.make_node("Reshape", ["flat", "shape"], ["jacobian"]),
        helper.make_node("ReduceSumSquare", ["jacobian", "last"], ["variance"], keepdims=0),
    ]
    constants: dict[str, np.ndarray] = {
        "table": table,
        "slope": jacobian,
        "axis": np.array([1], np.int64),
        "last": np.array([-1], np.int64),
        "shape": np.array([-1, 2, 2], np.int64),
    }
    graph = helper.make_graph(
        nodes,
        "tokens",
        [value_info("inputs", ("batch", length), TensorProto.INT64)],
        [value_info("mean", ("batch", 2)), value_info("variance", ("batch", 2))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    spec = InputSpec(shape=(length,), dtype="int64")
    manifest = make_manifest(outputs=2, parameter_count=10, size=2, spec=spec, scores=scores)
    posterior, indices = CholeskyPosterior(np.eye(2, dtype=np.float32)), np.array([0, 1], np.int64)
    write_bundle(
        out,
        manifest,
        model=model_bytes(graph),
        posterior=posterior,
        subnetwork_indices=indices,
        calibration=CalibrationTensors(scores, even_outcomes(scores, 2)),
    )
    return Synthetic(out, manifest, table, np.zeros(2, np.float32), posterior, indices, scores)


WORDS = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "the", "film", "was", "good", "bad"])}
TOKENS = 4  # of a text
TEXT_SPEC = InputSpec(
    shape=(2 * TOKENS,),
    parts=(InputPart("attention_mask", (TOKENS,), "int64"), InputPart("input_ids", (TOKENS,), "int64")),
    text=InputText(("mask", "ids")),
)


def tokenizer_json(length: int = TOKENS, **changes: Any) -> bytes:
    """A tokenizer of `WORDS`, which begins with [CLS], cuts and fills."""
    filling = {"direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": length, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": length}, **filling},
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [WORDS["[CLS]"]], "tokens": ["[CLS]"]}},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"},
    }
    return json.dumps(content | changes).encode()


IMAGE_SPEC = InputSpec(shape=(1, 4, 5), image=ImagePreprocessing(mode="L", scale=1 / 255, mean=(0.5,), std=(0.25,)))
FEATURE_SPEC = InputSpec(shape=(4,), feature_names=("a", "b", "c", "d"))
