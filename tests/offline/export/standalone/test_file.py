"""offline/export/standalone/file.py: one file, written whole or not at all, and only after it was verified."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import demur.service.format.files
from demur.offline.export.standalone.errors import StandaloneError
from demur.offline.export.standalone.file import export_standalone
from demur.offline.export.standalone.model import standalone_model
from demur.offline.export.standalone.verify import verify_standalone
from demur.service import BundleError, Predictor, read_bundle
from demur.service.maths.predictive import PROBIT
from tests.support.bundles import FEATURE_SPEC, Synthetic, rewrite, write_linear, write_tokens
from tests.support.standalone import GOLDEN


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    return write_linear(tmp_path_factory.mktemp("file") / "bundle", outputs=3, spec=FEATURE_SPEC)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_says_what_it_wrote(bundle: Synthetic, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder" / "model.onnx"
    written = export_standalone(bundle.path, out)
    assert (written.path, written.bytes) == (out, out.stat().st_size)
    assert written.inputs == {"inputs": "float32 (batch, 4)"}
    assert written.outputs["mean"] == "float32 (batch, 3)"
    assert written.outputs["probabilities"] == "float64 (batch, 3)"
    assert written.outputs["rejected"] == "bool (batch)"
    assert names(out.parent) == ["model.onnx"]
    assert out.stat().st_mode & 0o777 == 0o644


def test_an_existing_file_is_replaced_only_where_that_is_asked_for(bundle: Synthetic, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    out.write_text("precious")
    with pytest.raises(StandaloneError, match=r"model\.onnx: exists; nothing was overwritten, .* --force"):
        export_standalone(bundle.path, out)
    assert out.read_text() == "precious"
    export_standalone(bundle.path, out, force=True)
    onnx.checker.check_model(str(out))
    assert names(tmp_path) == ["model.onnx"]


@pytest.mark.parametrize("force", [False, True])
def test_places_that_hold_no_file(bundle: Synthetic, tmp_path: Path, force: bool) -> None:
    before = names(bundle.path)
    with pytest.raises(StandaloneError, match="exists and is no file; give the name of a new file"):
        export_standalone(bundle.path, tmp_path, force=force)
    with pytest.raises(StandaloneError, match=r"lies in the bundle .*; choose a place outside it"):
        export_standalone(bundle.path, bundle.path / "model.onnx", force=force)
    (tmp_path / "file").touch()
    with pytest.raises(StandaloneError, match=r"file/model\.onnx: cannot be written"):
        export_standalone(bundle.path, tmp_path / "file" / "model.onnx", force=force)
    assert names(bundle.path) == before


def test_a_bundle_that_is_damaged_or_none_leaves_no_file(bundle: Synthetic, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    with pytest.raises(BundleError, match="no such folder"):
        export_standalone(tmp_path / "none", out)
    damaged = rewrite(bundle.path, tmp_path / "damaged")
    (damaged / "model.onnx").write_bytes(b"another")
    with pytest.raises(BundleError, match=r"damaged/model\.onnx: found 7 bytes"):
        export_standalone(damaged, out)
    foreign = rewrite(bundle.path, tmp_path / "foreign", model=b"no graph")
    with pytest.raises(BundleError, match=r"foreign/model\.onnx: onnxruntime cannot open it"):
        export_standalone(foreign, out)
    assert not out.exists()


def test_a_write_that_fails_leaves_what_was_there(
    bundle: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        path.write_bytes(data[:100])
        raise OSError(28, "No space left on device")

    out = tmp_path / "model.onnx"
    out.write_text("precious")
    monkeypatch.setattr(demur.service.format.files, "write_file", full)
    with pytest.raises(StandaloneError, match=r"model\.onnx: cannot be written \(No space left on device\)"):
        export_standalone(bundle.path, out, force=True)
    assert out.read_text() == "precious"
    assert names(tmp_path) == ["model.onnx"]


# --------------------------------------------------------------------------- verification


def changed(model: onnx.ModelProto, old: float, new: float) -> bytes:
    """The model with one number of its constants replaced."""
    (tensor,) = (t for t in model.graph.initializer if numpy_helper.to_array(t).shape == () and old == to_float(t))
    tensor.CopyFrom(numpy_helper.from_array(np.array(new), tensor.name))
    data: bytes = model.SerializeToString()
    return data


def to_float(tensor: onnx.TensorProto) -> float:
    return float(numpy_helper.to_array(tensor))


def test_what_is_sound_passes(tmp_path: Path) -> None:
    for path in (*GOLDEN.values(), write_tokens(tmp_path / "tokens").path):
        content = read_bundle(path)
        verify_standalone(standalone_model(content).SerializeToString(), Predictor(content))


@pytest.mark.parametrize(
    ("number", "other", "fields"),
    [
        (PROBIT, 0.39, "probabilities|score|total|epistemic"),
        (41.0, 40.0, "p_value"),
    ],
)
def test_another_number_is_noticed(bundle: Synthetic, tmp_path: Path, number: float, other: float, fields: str) -> None:
    content = read_bundle(bundle.path)
    model = changed(standalone_model(content), number, other)
    with pytest.raises(StandaloneError, match=rf"bundle: ({fields}): found .* expected .*; nothing was written"):
        verify_standalone(model, Predictor(content))


def test_another_threshold_is_noticed(bundle: Synthetic) -> None:
    """Below every score, so that everything is rejected."""
    content = read_bundle(bundle.path)
    model = changed(standalone_model(content), content.manifest.calibration.threshold, -1.0)
    with pytest.raises(StandaloneError, match="rejected: found"):
        verify_standalone(model, Predictor(content))


def test_what_onnxruntime_cannot_open_is_refused(bundle: Synthetic) -> None:
    with pytest.raises(StandaloneError, match="onnxruntime cannot open the new model"):
        verify_standalone(b"no model", Predictor.load(bundle.path))
