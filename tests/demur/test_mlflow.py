"""demur/mlflow.py: bundles as models of MLflow, in a store of files."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import demur.mlflow
from demur import BatchScorer, BundleError, Policy, Predictor
from demur.mlflow import mlflow
from demur.service.bundle import MODEL, SIGNATURE, Bundle, InputPart, InputSpec, read_bundle
from demur.service.security.signing import sign_bundle
from tests.support.bundles import FEATURE_SPEC, TEXT_SPEC, tokenizer_json, write_linear
from tests.support.server import ROOT, environment
from tests.support.signing import KEY, OTHER, pem
from tests.support.tamper import contents, copy_bundle, load_json, save_json

GOLDEN = ROOT / "tests" / "golden" / "v1" / "bundle"
DIGITS = np.array(json.loads((GOLDEN.parent / "answers.json").read_text())["inputs"], np.float32)
ROWS = np.random.default_rng(3).normal(size=(6, 4)).astype(np.float32)
TEXTS = ["the film was good", "the film was bad", "good"]
PARTS = InputSpec((5,), parts=(InputPart("picture", (2, 2)), InputPart("age", (1,), "int64")))
NAME, VERSION = "demur", demur.__version__


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, models and the registry, in files."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())


def table(folder: Path) -> Path:
    return write_linear(folder, outputs=3, spec=FEATURE_SPEC, class_names=("x", "y", "z")).path


def saved(bundle: Path, folder: Path) -> Path:
    """The model that is written for a bundle."""
    demur.mlflow.save_model(bundle, folder)
    return folder


def same(found: pd.DataFrame, expected: dict[str, np.ndarray]) -> None:
    """To the bit."""
    assert list(found.columns) == list(expected)
    for name, column in expected.items():
        assert found[name].tolist() == column.tolist(), name


def test_a_logged_bundle_comes_back_by_each_uri_and_predicts_the_same(store: None) -> None:
    with mlflow.start_run() as run:
        info = demur.mlflow.log_model(GOLDEN, name="digits", registered_model_name="numbers")
    expected, columns = Predictor.load(GOLDEN).predict(DIGITS), BatchScorer(GOLDEN)({"inputs": DIGITS})
    for uri in (info.model_uri, f"runs:/{run.info.run_id}/digits", "models:/numbers/1"):
        found = demur.mlflow.load_model(uri).predict(DIGITS)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
        np.testing.assert_array_equal(found.variance, expected.variance)
        np.testing.assert_array_equal(found.rejected, expected.rejected)
        same(mlflow.pyfunc.load_model(uri).predict(DIGITS), columns)


def test_the_held_out_figures_are_metrics_of_the_run_and_of_the_model(store: None) -> None:
    with mlflow.start_run() as run:
        info = demur.mlflow.log_model(GOLDEN, name="digits", tags={"team": "post"}, params={"seed": 3})
    manifest, client = read_bundle(GOLDEN).manifest, mlflow.MlflowClient()
    metrics = client.get_run(run.info.run_id).data.metrics
    assert metrics.items() >= manifest.metrics.items()
    assert metrics["rejected/scaled-by-10"] == 0.97
    logged = client.get_logged_model(info.model_id)
    assert {metric.key: metric.value for metric in logged.metrics or ()} == metrics
    assert logged.params.items() >= {"task": "classification", "false_reject_rate": "0.05", "seed": "3"}.items()
    assert logged.tags.items() >= {"demur.digest": read_bundle(GOLDEN).digest, "team": "post"}.items()


def test_without_a_run_the_model_is_logged_alone(store: None) -> None:
    info = demur.mlflow.log_model(GOLDEN, name="digits")
    assert info.run_id is None
    assert demur.mlflow.load_model(info.model_uri).manifest.name == "golden-digits"
    assert mlflow.search_runs(output_format="list") == []


def test_the_flavours_name_the_bundle_and_what_loads_it(tmp_path: Path) -> None:
    model = mlflow.models.Model.load(str(saved(GOLDEN, tmp_path / "model")))
    assert model.flavors["demur"] == {
        "data": "data/bundle",
        "demur_version": VERSION,
        "digest": read_bundle(GOLDEN).digest,
        "task": "classification",
        "model_name": "golden-digits",
        "model_version": "1",
    }
    assert model.flavors["python_function"]["loader_module"] == "demur.mlflow"
    assert contents(tmp_path / "model/data/bundle") == contents(GOLDEN)
    assert not [file for file in (tmp_path / "model").rglob("*") if file.suffix in (".pkl", ".py")]


def test_a_model_needs_this_version_and_tokenizers_for_texts(tmp_path: Path) -> None:
    texts = write_linear(tmp_path / "texts", outputs=2, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path
    for bundle, needed in ((GOLDEN, False), (texts, True)):
        lines = (saved(bundle, tmp_path / f"model-{needed}") / "requirements.txt").read_text().split()
        assert f"{NAME}=={VERSION}" in lines
        assert f"pandas=={pd.__version__}" in lines
        assert any(line.startswith("tokenizers==") for line in lines) == needed
    demur.mlflow.save_model(GOLDEN, tmp_path / "own", pip_requirements=["demur.whl", "pandas"])
    assert "demur.whl" in (tmp_path / "own/requirements.txt").read_text().split()


def test_a_table_is_found_by_its_columns(tmp_path: Path) -> None:
    bundle = table(tmp_path / "bundle")
    model = mlflow.pyfunc.load_model(str(saved(bundle, tmp_path / "model")))
    assert model.metadata.get_input_schema().input_names() == ["a", "b", "c", "d"]
    assert {spec.type for spec in model.metadata.get_input_schema().inputs} == {mlflow.types.DataType.double}
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c", "d"], index=list("uvwxyz"))
    found = model.predict(frame[["d", "b", "a", "c"]])
    assert list(found.index) == list("uvwxyz")
    same(found, BatchScorer(bundle)({"inputs": ROWS}))
    assert list(found.columns) == model.metadata.get_output_schema().input_names()
    assert isinstance(model.get_raw_model(), Predictor)
    with pytest.raises(mlflow.MlflowException, match=r"missing inputs \['c'\]"):
        model.predict(frame.drop(columns="c"))


def test_arrays_and_frames_without_names_are_tensors(tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "bundle", outputs=3, spec=InputSpec(shape=(4,))).path
    model = mlflow.pyfunc.load_model(str(saved(bundle, tmp_path / "model")))
    (spec,) = model.metadata.get_input_schema().inputs
    assert (spec.type, spec.shape, spec.name) == (np.dtype("float32"), (-1, 4), None)
    expected = BatchScorer(bundle)({"inputs": ROWS})
    same(model.predict(ROWS), expected)
    same(model.predict(pd.DataFrame(ROWS)), expected)
    with pytest.raises(mlflow.MlflowException, match="expected shape"):
        model.predict(ROWS[:, :3])


def test_several_inputs_are_tensors_by_name(tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "bundle", outputs=3, spec=PARTS).path
    model = mlflow.pyfunc.load_model(str(saved(bundle, tmp_path / "model")))
    batch = {"age": np.arange(6)[:, np.newaxis], "picture": ROWS.reshape(6, 2, 2)}
    assert model.metadata.get_input_schema().input_names() == ["picture", "age"]
    same(model.predict(batch), BatchScorer(bundle)(batch))


@pytest.mark.parametrize(
    "given",
    [TEXTS, np.array(TEXTS), pd.Series(TEXTS), pd.DataFrame({"review": TEXTS})],
    ids=lambda one: type(one).__name__,
)
def test_texts_are_one_column(given: Any, tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "bundle", outputs=2, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path
    model = mlflow.pyfunc.load_model(str(saved(bundle, tmp_path / "model")))
    same(model.predict(given), BatchScorer(bundle)({"inputs": TEXTS}))


def test_texts_among_other_columns_are_not_guessed(tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "bundle", outputs=2, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path
    model = mlflow.pyfunc.load_model(str(saved(bundle, tmp_path / "model")))
    same(model.predict(pd.DataFrame({"id": [1, 2, 3], "text": TEXTS})), BatchScorer(bundle)({"inputs": TEXTS}))
    with pytest.raises(ValueError, match="inputs: found the columns 'id', 'review', expected one, of texts"):
        model.predict(pd.DataFrame({"id": [1, 2, 3], "review": TEXTS}))


@pytest.mark.parametrize("task", [{"several": True}, {"regression": True}], ids=["multilabel", "regression"])
def test_other_tasks_have_their_own_columns(task: dict[str, Any], tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "bundle", outputs=2, spec=FEATURE_SPEC, **task).path
    model = mlflow.pyfunc.load_model(str(saved(bundle, tmp_path / "model")))
    found = model.predict(pd.DataFrame(ROWS, columns=list("abcd")))
    same(found, BatchScorer(bundle)({"inputs": ROWS}))
    assert list(found.columns) == model.metadata.get_output_schema().input_names()


def test_a_call_may_ask_for_a_rate(tmp_path: Path) -> None:
    bundle = table(tmp_path / "bundle")
    model = mlflow.pyfunc.load_model(str(saved(bundle, tmp_path / "model")))
    frame = pd.DataFrame(ROWS, columns=list("abcd"))
    strict = BatchScorer(bundle, policy=Policy(false_reject_rate=0.5))({"inputs": ROWS})
    usual = BatchScorer(bundle)({"inputs": ROWS})
    assert strict["rejected"].tolist() != usual["rejected"].tolist()
    same(model.predict(frame, params={"false_reject_rate": 0.5}), strict)
    same(model.predict(frame), usual)
    with pytest.raises(ValueError, match=r"false_reject_rate: found 0\.001, expected 0\.0244 to 1"):
        model.predict(frame, params={"false_reject_rate": 0.001})


def test_no_rows_give_no_rows(tmp_path: Path) -> None:
    model = demur.mlflow.PyfuncModel(Predictor.load(table(tmp_path / "bundle")))
    found = model.predict(pd.DataFrame(ROWS[:0], columns=list("abcd")))
    assert (len(found), "rejected" in found) == (0, True)


def change_model(bundle: Path) -> None:
    data = bytearray((bundle / MODEL).read_bytes())
    data[-1] ^= 1
    (bundle / MODEL).write_bytes(data)


def change_manifest(bundle: Path) -> None:
    """As who can change a file can change its hash."""
    save_json(bundle, load_json(bundle) | {"temperature": 3.0})


@pytest.mark.parametrize(
    ("change", "words"),
    [(change_model, "model.onnx: found sha256"), (change_manifest, "expected the one that was logged")],
)
@pytest.mark.parametrize("load", [demur.mlflow.load_model, mlflow.pyfunc.load_model])
def test_another_bundle_than_the_logged_one_is_refused(
    change: Callable[[Path], None], words: str, load: Callable[[str], Any], tmp_path: Path
) -> None:
    model = saved(GOLDEN, tmp_path / "model")
    change(model / "data" / "bundle")
    with pytest.raises(BundleError, match=words):
        load(str(model))


def test_only_what_is_signed_is_loaded_where_keys_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = copy_bundle(GOLDEN, tmp_path / "signed")
    sign_bundle(signed, KEY)
    keys, others = tmp_path / "keys.pem", tmp_path / "others.pem"
    keys.write_text(pem(KEY))
    others.write_text(pem(OTHER))
    model = str(saved(signed, tmp_path / "model"))
    assert (tmp_path / "model/data/bundle" / SIGNATURE).is_file()
    assert demur.mlflow.load_model(model, trusted_keys=keys).manifest.name == "golden-digits"
    with pytest.raises(BundleError, match=SIGNATURE):
        demur.mlflow.load_model(model, trusted_keys=others)
    monkeypatch.setenv("DEMUR_TRUSTED_KEYS", str(others))
    for load in (demur.mlflow.load_model, mlflow.pyfunc.load_model):
        with pytest.raises(BundleError, match=SIGNATURE):
            load(model)


def test_a_bundle_that_changes_while_it_is_saved_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = copy_bundle(GOLDEN, tmp_path / "bundle")

    def changed(path: Path) -> Bundle:
        found = read_bundle(path)
        if path == bundle:
            (bundle / MODEL).unlink()
        return found

    monkeypatch.setattr(demur.mlflow, "read_bundle", changed)
    with pytest.raises(BundleError, match="changed while it was copied"):
        demur.mlflow.save_model(bundle, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_of_another_flavour_is_refused(tmp_path: Path) -> None:
    other = mlflow.models.Model()
    other.add_flavor("sklearn")
    other.save(str(tmp_path / "MLmodel"))
    with pytest.raises(BundleError, match="found the flavours 'sklearn', expected 'demur'"):
        demur.mlflow.load_model(str(tmp_path))
    with pytest.raises(BundleError, match="MLmodel: missing file"):
        demur.mlflow.load_model(str(GOLDEN))


def test_a_path_that_is_taken_and_a_folder_without_a_bundle_are_refused(tmp_path: Path, store: None) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("mine")
    for path in (tmp_path / "taken", tmp_path / "taken/file"):
        with pytest.raises(BundleError, match="exists, and is no empty folder"):
            demur.mlflow.save_model(GOLDEN, path)
    assert contents(tmp_path / "taken") == {"file": b"mine"}
    with pytest.raises(BundleError, match="missing file"):
        demur.mlflow.log_model(tmp_path / "taken", name="digits")
    assert mlflow.search_logged_models(output_format="list") == []


def test_where_mlflow_is_missing_the_error_says_how_to_install_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mlflow'] = None; import demur.mlflow"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: demur.mlflow needs mlflow, which is not installed: in a checkout of Demur, pip install "
        "'.[mlflow]'"
    )
