"""One ONNX model from a bundle: the network's graph, and after it what `Predictor.predict` computes."""

import json
from typing import Any

import onnx
from onnxscript import ir

from demur.service.bundle import MODEL, Bundle
from demur.service.format.manifest_json import to_json
from demur.service.maths.rejection import RejectionRule

from .decision_graph import decide
from .errors import StandaloneError
from .nodes import MIN_OPSET, NodeBuilder

FORMAT, FORMAT_VERSION = "demur-standalone", "1.0"
PROTOBUF_LIMIT = 2**31
BATCH = "batch"
PER_OUTPUT = ("mean", "variance", "probabilities", "map_probabilities", "std", "noise_scale")
FLOAT32 = ("mean", "variance", "added_variance", "noise_scale")
MEANINGS = {
    "inputs": "Examples as the network takes them.",
    "mean": "Outputs of the network: logits before any temperature, or regression means.",
    "variance": "v: the variances of the outputs by the posterior over weights.",
    "added_variance": "The part of each variance that weights added to the network have; it grows with the distance "
    "from the training data.",
    "score": "The out-of-distribution score that demur.score names: larger is less like the calibration data.",
    "p_value": "Conformal p-value of the score: (1 + #{calibration score >= score}) / (n + 1).",
    "rejected": "Whether the score is above the threshold, or an output is not finite.",
    "probabilities": "softmax(mean / sqrt(T^2 + pi / 8 v)), T demur.temperature; with demur.link probit-shared, v "
    "is the mean of an example's variances; with probit-sigmoid, of having each label, sigmoid of the same.",
    "map_probabilities": "softmax(mean / T_0), or sigmoid, T_0 demur.map_temperature: the plain network.",
    "total": "Entropy of the probabilities, in nats.",
    "aleatoric": "Entropy of map_probabilities, at most the total, in nats.",
    "epistemic": "total - aleatoric, in nats.",
    "std": "sqrt(v + sigma_noise^2), or sqrt(v + (sigma_noise noise_scale)^2) where there is a noise_scale.",
    "noise_scale": "How large the noise is for this input, relative to demur.sigma_noise.",
}


def standalone_model(bundle: Bundle, limit: int = PROTOBUF_LIMIT) -> onnx.ModelProto:
    """inputs (B, *input_shape) -> the fields of `Prediction` but `out_of_range`, under their names and in their types.

    The bundle's graph must have been checked by a `Predictor`. Raises `StandaloneError` where the model would not fit
    into `limit` bytes, or its operator set is older than the nodes need.
    """
    _check_size(bundle, len(bundle.model) + 8 * len(bundle.calibration.scores), limit)  # before any work
    model = ir.from_proto(onnx.load_model_from_string(bundle.model))
    opset = model.graph.opset_imports[""]
    if opset < MIN_OPSET:
        problem = f"found opset {opset}, expected {MIN_OPSET} or later; fit the bundle again"
        raise StandaloneError(f"{bundle.path / MODEL}: {problem}")
    _add_decision(model.graph, bundle)
    ir.passes.common.NameFixPass()(model)  # inner values of the network may have the names of the new outputs
    _describe(model, bundle)
    proto = ir.to_proto(model)
    _check_size(bundle, proto.ByteSize(), limit)
    return proto


def _check_size(bundle: Bundle, size: int, limit: int) -> None:
    if size >= limit:
        raise StandaloneError(
            f"{bundle.path}: found {size} bytes of weights and calibration scores, expected less than {limit}, which "
            "one ONNX file can hold; fit it with fewer weights, or those of the last layers"
        )


def _add_decision(graph: ir.Graph, bundle: Bundle) -> None:
    """Replace the graph's outputs by the fields of a prediction."""
    manifest, add = bundle.manifest, NodeBuilder(graph)
    given = {value.name: value for value in graph.outputs}
    rule = RejectionRule(bundle.calibration.scores, manifest.calibration.false_reject_rate)
    extra = [given.get(name) for name in ("feature_scores", "added_variance", "noise_scale")]
    fields = decide(add, given["mean"], given["variance"], manifest, rule, bundle.calibration.scoring, *extra)
    graph.outputs.clear()
    for name, value in fields.items():
        value.name = name
        value.shape = ir.Shape([BATCH, manifest.outputs] if name in PER_OUTPUT else [BATCH])
        value.dtype = _dtype(name)
        graph.outputs.append(value)


def _dtype(name: str) -> ir.DataType:
    if name == "rejected":
        return ir.DataType.BOOL
    return ir.DataType.FLOAT if name in FLOAT32 else ir.DataType.DOUBLE


def _describe(model: ir.Model, bundle: Bundle) -> None:
    """Texts for people, and metadata for programs."""
    manifest = bundle.manifest
    model.producer_name = "demur"
    model.doc_string = f"{manifest.name} version {manifest.version}, from the bundle {bundle.digest}"
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.doc_string = MEANINGS[value.name or ""]
    for key, entry in metadata(bundle).items():
        model.metadata_props[f"demur.{key}"] = entry if isinstance(entry, str) else json.dumps(entry)


def metadata(bundle: Bundle) -> dict[str, Any]:
    """What the model says about itself; values that are not texts are written as JSON."""
    manifest, document = bundle.manifest, to_json(bundle.manifest)
    rule = RejectionRule(bundle.calibration.scores, manifest.calibration.false_reject_rate)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "bundle_digest": bundle.digest,
        **{key: document[key] for key in ("name", "version", "task", "class_names", "input", "sigma_noise")},
        "temperature": manifest.temperature,
        "map_temperature": manifest.map_temperature,
        "link": manifest.link,
        "score": manifest.calibration.score,
        "threshold": rule.threshold,
        "false_reject_rate": manifest.calibration.false_reject_rate,
        "calibration_examples": manifest.calibration.examples,
    }
