"""Bundles as models of MLflow: logged, registered, and loaded again by their URIs.

>>> import demur.mlflow  # first
>>> import mlflow
>>> with mlflow.start_run():
...     demur.mlflow.log_model("bundles/digits", name="digits", registered_model_name="digits")
>>> demur.mlflow.load_model("models:/digits/1").predict(inputs)
>>> mlflow.pyfunc.load_model("models:/digits/1").predict(inputs)  # the columns of `demur score`

The folder that MLflow keeps holds the files of the bundle and no code. Loading checks them as `Predictor.load` does,
and nothing is unpickled. Importing this module switches MLflow's telemetry off, unless `MLFLOW_DISABLE_TELEMETRY` is
set: import it first, since MLflow notes an installation id in the home folder when it is imported with telemetry on.
"""

import copy
import importlib.metadata
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from demur.service.bundle import MANIFEST, README, SIGNATURE, Bundle, BundleError, Manifest, read_bundle
from demur.service.format.files import ELSEWHERE, write_file
from demur.service.inference.frames import is_frame, places_alike
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Predictor
from demur.service.security.signing import TrustedKeys

from .scoring.batches import column_kinds, predicted_columns
from .scoring.texts import COLUMN
from .transfer import trusted_by_environment

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a user who wants telemetry sets it to false

try:
    with warnings.catch_warnings():
        # mlflow.pyfunc warns of the types of its own agents.
        warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
        import mlflow as mlflow  # noqa: TID251
        import mlflow.artifacts  # noqa: TID251
        import mlflow.environment_variables  # noqa: TID251
        import mlflow.models.model  # noqa: TID251
        import mlflow.pyfunc  # noqa: TID251
        import mlflow.telemetry  # noqa: TID251
        import mlflow.types.schema  # noqa: TID251
        import pandas as pd
except ModuleNotFoundError as error:
    raise ImportError(
        f"demur.mlflow needs {error.name}, which is not installed: in a checkout of Demur, pip install '.[mlflow]'",
        name=error.name,
    ) from error

__all__ = ["load_model", "log_model", "save_model"]
FLAVOUR = "demur"
BUNDLE = "bundle"
RATE = "false_reject_rate"


def _end_telemetry() -> None:
    """Where MLflow was imported before the variable was set, its client is there already."""
    telemetry: Any = mlflow.telemetry
    switch: Any = mlflow.environment_variables.MLFLOW_DISABLE_TELEMETRY
    client = telemetry.get_telemetry_client()
    if client is not None and switch.get():
        telemetry.set_telemetry_client()  # None from now on
        client.flush(terminate=True)  # its threads send nothing more


_end_telemetry()


def save_model(
    bundle: Path | str,
    path: Path | str,
    *,
    mlflow_model: mlflow.models.Model | None = None,
    pip_requirements: list[str] | str | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write the bundle in the folder `bundle` as a model of MLflow to `path`, a folder that is empty or not there yet.

    mlflow_model: the model that the flavours are added to, as MLflow itself gives it. pip_requirements: in place of
    Demur at this version, pandas, and for texts tokenizers; MLflow adds its own. metadata: kept in MLmodel. Raises
    `BundleError` for a bundle that is refused, or changes meanwhile, and for a path that is taken.
    """
    out, read = Path(path), read_bundle(bundle)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise BundleError(out, "exists, and is no empty folder", ELSEWHERE)
    manifest, model = read.manifest, mlflow.models.Model() if mlflow_model is None else mlflow_model
    model.signature = _signature(manifest)  # given to mlflow.pyfunc, it would warn that there is no example
    with tempfile.TemporaryDirectory(prefix="demur-mlflow-") as scratch:
        copied = Path(scratch) / BUNDLE
        _copy(read, copied)
        model.add_flavor(
            FLAVOUR,
            data=f"data/{BUNDLE}",  # where mlflow.pyfunc puts a folder of this name
            demur_version=importlib.metadata.version("demur"),
            digest=read.digest,
            task=manifest.task,
            model_name=manifest.name,
            model_version=manifest.version,
        )
        mlflow.pyfunc.save_model(
            str(out),
            loader_module=__name__,
            data_path=str(copied),
            mlflow_model=model,
            pip_requirements=_requirements(manifest) if pip_requirements is None else pip_requirements,
            metadata=metadata,
        )


def log_model(
    bundle: Path | str,
    name: str | None = None,
    *,
    registered_model_name: str | None = None,
    pip_requirements: list[str] | str | None = None,
    params: dict[str, Any] | None = None,
    tags: dict[str, Any] | None = None,
    **options: Any,
) -> mlflow.models.model.ModelInfo:
    """Log the bundle in the folder `bundle` as a model, of the active run where there is one; returns what MLflow says.

    The model gets the bundle's task, sizes and false-reject rate as params and its digest as a tag, beside `params` and
    `tags`; the held-out figures become metrics of the run and of the model, which needs a run. registered_model_name:
    the registered model that gets a new version. pip_requirements: as for `save_model`. options: others of
    `mlflow.models.Model.log`, such as `run_id` or `metadata`. Raises `BundleError` before anything is logged, and
    `MlflowException`.
    """
    read = read_bundle(bundle)
    info: mlflow.models.model.ModelInfo = mlflow.models.Model.log(
        artifact_path=None,
        flavor=sys.modules[__name__],
        name=name,
        registered_model_name=registered_model_name,
        params=_params(read.manifest) | (params or {}),
        tags={"demur.digest": read.digest} | (tags or {}),
        bundle=bundle,
        pip_requirements=pip_requirements,
        **options,
    )
    if info.run_id is not None:
        mlflow.log_metrics(_metrics(read.manifest), run_id=info.run_id, model_id=info.model_id)
    return info


def load_model(
    model_uri: str,
    *,
    dst_path: Path | str | None = None,
    trusted_keys: Path | str | None = None,
    threads: int | None = None,
    policy: Policy | None = None,
) -> Predictor:
    """The predictor of the bundle at `model_uri`, such as `models:/digits/1`, `runs:/RUN/digits` or a folder.

    dst_path: where what is downloaded is kept. trusted_keys: the file of the public keys one of which must have signed
    the bundle; by default the one that `DEMUR_TRUSTED_KEYS` names, if any. threads, policy: as for `Predictor.load`.
    Raises `BundleError` for a bundle that is refused, is not the one that was logged, or is none, and `MlflowException`
    for a model that is not there.
    """
    kept = None if dst_path is None else str(dst_path)
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=model_uri, dst_path=kept))
    verify = trusted_by_environment() if trusted_keys is None else TrustedKeys.from_file(Path(trusted_keys))
    return Predictor(_read(folder, verify), threads=threads, policy=policy)


class PyfuncModel:
    """What `mlflow.pyfunc.load_model` calls."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Arrays, a data frame, arrays by name, or texts in a list, a series or a frame of one column or with a column
        `text` -> the columns of `demur score`, a row for each row of the input.

        params: with a `false_reject_rate`, inputs are rejected at this rate. Raises `ValueError` for inputs of another
        form and for a rate that the bundle cannot keep, and `NonFinitePrediction`.
        """
        predictor = self._at_rate((params or {}).get(RATE))
        index = model_input.index if isinstance(model_input, pd.DataFrame | pd.Series) else None
        return pd.DataFrame(predicted_columns(predictor, self._inputs(model_input)), index=index)

    def get_raw_model(self) -> Predictor:
        """For `get_raw_model` of MLflow's own class."""
        return self.predictor

    def _inputs(self, given: Any) -> Any:
        if self.predictor.reader is None or not is_frame(given):
            return given
        columns = list(given.columns)
        places = [0] if len(columns) == 1 else places_alike(list(map(str, columns)), [COLUMN])[0]
        if len(places) != 1:
            found = ", ".join(map(repr, columns))
            raise ValueError(
                f"inputs: found the columns {found:.300}, expected one, of texts, or one called {COLUMN!r}"
            )
        return given[columns[places[0]]]

    def _at_rate(self, rate: float | None) -> Predictor:
        if rate is None:
            return self.predictor
        own = self.predictor.decision
        if not own.rule.least_rate <= rate < 1:
            raise ValueError(f"{RATE}: found {rate:g}, expected {own.rule.least_rate:.3g} to 1, or no rate")
        predictor = copy.copy(self.predictor)
        predictor.decision = own.at(rate)
        return predictor


def _load_pyfunc(path: str) -> PyfuncModel:
    """For `mlflow.pyfunc.load_model`; path: the folder of the bundle in that of the model. Where `DEMUR_TRUSTED_KEYS`
    names a file, one of its keys must have signed the bundle."""
    return PyfuncModel(Predictor(_read(Path(path).parents[1], trusted_by_environment())))


def _read(folder: Path, verify: TrustedKeys | None) -> Bundle:
    """The bundle in the folder of a model, which must be the one that was logged."""
    file = folder / mlflow.models.model.MLMODEL_FILE_NAME
    if not file.is_file():
        raise BundleError(file, "missing file", "give the URI of a model that demur.mlflow logged")
    flavours = mlflow.models.Model.load(str(file)).flavors
    if FLAVOUR not in flavours:
        found = ", ".join(map(repr, flavours))
        raise BundleError(file, f"found the flavours {found}, expected {FLAVOUR!r}", "load it with mlflow.pyfunc")
    data, digest = (str(flavours[FLAVOUR].get(name, "")) for name in ("data", "digest"))
    bundle = read_bundle(folder / data, verify)
    if bundle.digest != digest:
        problem = f"found a bundle of digest {bundle.digest}, expected the one that was logged, {digest}"
        raise BundleError(bundle.path, problem, "log the bundle again")
    return bundle


def _copy(bundle: Bundle, folder: Path) -> None:
    """Copy what was read, with the bundle's signature and page, into a new folder."""
    folder.mkdir()
    beside = [name for name in (SIGNATURE, README) if (bundle.path / name).is_file()]
    try:
        for name in (*bundle.manifest.files, *beside, MANIFEST):
            write_file(folder / name, (bundle.path / name).read_bytes())
        same = read_bundle(folder).digest == bundle.digest
    except (FileNotFoundError, BundleError):
        same = False
    if not same:
        raise BundleError(bundle.path, "changed while it was copied", "try again")


def _requirements(manifest: Manifest) -> list[str]:
    texts = ["tokenizers"] if manifest.input.text is not None else []
    return [_pinned(name) for name in ("demur", "pandas", *texts)]


def _pinned(name: str) -> str:
    """The version that is installed; a bundle of texts can be saved where tokenizers is not."""
    try:
        return f"{name}=={importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return name


def _signature(manifest: Manifest) -> mlflow.models.ModelSignature:
    """Columns by the names of the features, or tensors; the columns of `demur score`.

    Of texts nothing: MLflow would take the first column of a frame, whatever is in it, and leave the others out.
    """
    types, spec = mlflow.types, manifest.input
    kinds: dict[type, Any] = {
        str: types.DataType.string,
        float: types.DataType.double,
        bool: types.DataType.boolean,
        list: types.schema.Array(types.DataType.string),
    }
    inputs: list[Any]
    if spec.text is not None:
        inputs = []
    elif spec.feature_names is not None:
        inputs = [types.ColSpec("double", name) for name in spec.feature_names]
    else:
        inputs = [
            types.TensorSpec(np.dtype(piece.dtype), (-1, *piece.shape), piece.name or None) for piece in spec.pieces
        ]
    outputs: list[Any] = [
        types.ColSpec(kinds[kind], name, required=kind is not list) for name, kind in column_kinds(manifest).items()
    ]
    rate = types.ParamSpec(RATE, "double", None)
    return mlflow.models.ModelSignature(
        types.Schema(inputs) if inputs else None, types.Schema(outputs), types.ParamSchema([rate])
    )


def _params(manifest: Manifest) -> dict[str, Any]:
    return {
        "task": manifest.task,
        "outputs": manifest.outputs,
        "parameter_count": manifest.parameter_count,
        "subnetwork_size": manifest.subnetwork_size,
        "score": manifest.calibration.score,
        RATE: manifest.calibration.false_reject_rate,
    }


def _metrics(manifest: Manifest) -> dict[str, float]:
    """The figures of the fit, and what share of each kind of foreign inputs is rejected."""
    shares = {f"rejected/{found.name}": found.share for found in manifest.rejection or ()}
    return {**manifest.metrics, "calibration_examples": float(manifest.calibration.examples), **shares}
