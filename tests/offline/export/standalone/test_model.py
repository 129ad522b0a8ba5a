"""offline/export/standalone/model.py: one ONNX model that answers what the bundle's predictor answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from demur.offline.export.standalone.errors import StandaloneError
from demur.offline.export.standalone.model import MEANINGS, metadata, standalone_model
from demur.offline.export.standalone.verify import open_model, run_standalone
from demur.service import Predictor, read_bundle
from tests.support.added import added_variance
from tests.support.bundles import FEATURE_SPEC, graph_of, model_bytes, rewrite, write_linear
from tests.support.standalone import BUNDLES, GOLDEN, Exported, example_batches, same_prediction

# the exporter's own deprecations, in the bundles that are fitted
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("short_fits")]


@pytest.mark.parametrize("exported", BUNDLES, indirect=True)
def test_it_answers_as_the_predictor_does(exported: Exported) -> None:
    predictor, session = Predictor.load(exported.bundle), open_model(exported.model.read_bytes())
    for inputs in example_batches(predictor.manifest.input):
        same_prediction(run_standalone(session, inputs), predictor.predict(inputs))


@pytest.mark.parametrize("name", GOLDEN)
def test_it_gives_the_answers_that_are_kept_with_a_golden_bundle(name: str) -> None:
    answers = json.loads((GOLDEN[name].parent / "answers.json").read_text())
    session = open_model(standalone_model(read_bundle(GOLDEN[name])).SerializeToString())
    found = run_standalone(session, np.array(answers["inputs"], np.float32))
    assert found["rejected"].tolist() == answers["rejected"]
    for field in ("mean", "variance", "probabilities", "score", "p_value"):
        np.testing.assert_allclose(found[field], answers[field], rtol=1e-4, atol=1e-6, err_msg=field)


@pytest.mark.parametrize("exported", BUNDLES, indirect=True)
def test_it_is_a_plain_model(exported: Exported) -> None:
    """Standard operators alone, everything in one file, a batch of any size."""
    model = onnx.load(exported.model, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert [entry.domain for entry in model.opset_import] == [""]
    assert {node.domain for node in model.graph.node} == {""}
    assert not len(model.functions)
    assert not [tensor for tensor in model.graph.initializer if tensor.external_data]
    for value in (*model.graph.input, *model.graph.output):
        first = value.type.tensor_type.shape.dim[0]
        assert (first.dim_param, first.dim_value) == ("batch", 0)
        assert value.doc_string == MEANINGS[value.name]


@pytest.mark.parametrize("exported", ["golden-v1", "features", "regression"], indirect=True)
def test_the_same_bundle_gives_the_same_bytes(exported: Exported) -> None:
    again = standalone_model(read_bundle(exported.bundle)).SerializeToString(deterministic=True)
    assert again == exported.model.read_bytes()


def test_its_metadata_say_what_it_is() -> None:
    bundle = read_bundle(GOLDEN["golden-v1"])
    session = open_model(standalone_model(bundle).SerializeToString())
    found = session.get_modelmeta().custom_metadata_map
    texts = {key: found.pop(f"demur.{key}") for key in ("format", "format_version", "bundle_digest", "name", "version")}
    assert texts == {
        "format": "demur-standalone",
        "format_version": "1.0",
        "bundle_digest": bundle.digest,
        "name": "golden-digits",
        "version": "1",
    }
    assert (found.pop("demur.task"), found.pop("demur.score")) == ("classification", "surprise")
    assert found.pop("demur.link") == bundle.manifest.link
    rest: dict[str, Any] = {key.removeprefix("demur."): json.loads(value) for key, value in found.items()}
    image = rest["input"]["image"]
    assert (rest.pop("input")["shape"], image["mode"], image["scale"]) == ([1, 8, 8], "L", 1 / 255)
    assert rest == {
        "class_names": [str(digit) for digit in range(10)],
        "sigma_noise": None,
        "temperature": bundle.manifest.temperature,
        "map_temperature": bundle.manifest.map_temperature,
        "threshold": bundle.manifest.calibration.threshold,
        "false_reject_rate": 0.05,
        "calibration_examples": 180,
    }


@pytest.mark.parametrize("exported", ["added"], indirect=True)
def test_its_metadata_say_the_link_and_both_temperatures_of_added_weights(exported: Exported) -> None:
    found = metadata(read_bundle(exported.bundle))
    assert [found[key] for key in ("link", "temperature", "map_temperature")] == ["probit-shared", 0.5, 1.5]


@pytest.mark.parametrize("exported", ["added", "added-distance", "added-regression"], indirect=True)
def test_it_gives_the_variance_of_added_weights(exported: Exported) -> None:
    inputs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    found = run_standalone(open_model(exported.model.read_bytes()), inputs)
    np.testing.assert_allclose(found["added_variance"], added_variance(inputs), rtol=1e-5)
    assert (found["variance"] >= found["added_variance"][:, np.newaxis]).all()


def test_inner_values_of_the_network_may_have_the_names_of_outputs(tmp_path: Path) -> None:
    synthetic = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC)
    graph = graph_of(synthetic)
    names = {"flat": "score", "scaled": "probabilities", "weight": "rejected", "bias": "std", "steep": "p_value"}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    path = rewrite(synthetic.path, tmp_path / "renamed", model=model_bytes(graph))
    session = open_model(standalone_model(read_bundle(path)).SerializeToString())
    inputs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    same_prediction(run_standalone(session, inputs), Predictor.load(path).predict(inputs))


def test_more_than_one_file_can_hold_is_refused(tmp_path: Path) -> None:
    """Before any work where the network and the calibration scores alone are too large, and in any case at the end."""
    bundle = read_bundle(write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC, size=6).path)
    whole, parts = standalone_model(bundle).ByteSize(), len(bundle.model) + 8 * 40
    assert standalone_model(bundle, limit=whole + 1).ByteSize() == whole
    for size, limit in ((whole, whole), (parts, parts)):
        message = f"found {size} bytes .* expected less than {limit}, .* fit it with fewer weights"
        with pytest.raises(StandaloneError, match=message):
            standalone_model(bundle, limit=limit)


def test_an_old_operator_set_is_refused(tmp_path: Path) -> None:
    synthetic = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC)
    model = onnx.load_model_from_string(read_bundle(synthetic.path).model)
    model.opset_import[0].version = 17
    path = rewrite(synthetic.path, tmp_path / "old", model=model.SerializeToString())
    Predictor.load(path)
    with pytest.raises(StandaloneError, match=r"model\.onnx: found opset 17, expected 18 or later"):
        standalone_model(read_bundle(path))
