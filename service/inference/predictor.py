"""Predictor: the graph of one bundle, and what is decided of its outputs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from ..bundle import TOKENIZER, Bundle, BundleError, InputSpec, Manifest, read_bundle
from ..remote.cache import pretrained
from ..remote.push import push
from .decision import Decision
from .frames import frame_array, is_frame, numbers_of
from .graph import Graph
from .input_range import RangeCheck
from .parts import packed
from .policy import Policy
from .prediction import NonFinitePrediction as NonFinitePrediction
from .prediction import Prediction as Prediction
from .prediction import check_finite as check_finite
from .texts import NEED_TOKENIZERS, TextError, TextReader, TokenizerError, texts_of

Array = npt.NDArray[Any]


class Predictor:
    """Answers for one bundle. Thread-safe: nothing that it computes with changes after construction.

    A pickle holds the bundle's path and digest: unpickling reads the bundle again, and refuses another digest.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int | None = None,
        policy: Policy | None = None,
    ) -> None:
        """`threads`: those of onnxruntime (None: its default). `policy`: such as another false-reject rate than the
        bundle's own.

        Raises `BundleError` for what the bundle cannot give, such as a rate for which it has too few calibration
        scores, and `TypeError` for anything but a `Policy`.
        """
        if policy is not None and not isinstance(policy, Policy):
            found = type(policy).__name__
            raise TypeError(f"policy: found {found}, expected a Policy, such as Policy(false_reject_rate=0.05)")
        self.path = bundle.path
        self.manifest: Manifest = bundle.manifest
        self.digest, self.manifest_sha256 = bundle.digest, bundle.manifest_sha256
        self.range_check = None if self.manifest.input.range is None else RangeCheck(self.manifest.input)
        self.reader = _reader_of(bundle)
        self.decision = Decision.of(bundle, policy or Policy())
        self.graph = Graph(bundle, threads=threads)
        self.takes_long = False
        """Whether other models should not wait for one of its batches; who serves it finds that out."""
        self.short_rows: int | None = None
        """A batch of so many examples does not take long; None: any batch that there is."""
        self.quick_rows = 0
        """So many examples take it no longer than a thread takes to begin; who serves it finds that out."""

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        threads: int | None = None,
        policy: Policy | None = None,
    ) -> "Predictor":
        """Read, check and open the bundle at `path`; raises `BundleError`."""
        return cls(read_bundle(path), threads=threads, policy=policy)

    @classmethod
    def from_pretrained(
        cls, name: Path | str, *, revision: str | None = None, cache_dir: Path | str | None = None, **options: Any
    ) -> "Predictor":
        """The bundle called OWNER/NAME on the Hugging Face Hub, in a folder, or at a URI (`hf://`, `s3://`, `gs://`,
        `az://`, `oci://`).

        revision: a branch, a tag or a commit on the Hub. cache_dir: where what is fetched is kept; by default
        `DEMUR_CACHE_DIR`, or `~/.cache/demur`. options: those of `load`. Raises `BundleError`.
        """
        return cls.load(pretrained(name, revision, None if cache_dir is None else Path(cache_dir)), **options)

    def push_to_hub(self, name: str, *, revision: str | None = None) -> str:
        """Copy the bundle to the repository OWNER/NAME on the Hugging Face Hub, in one commit; returns its URI.

        A repository that is not there is made, and is private. revision: the branch. Raises `BundleError`.
        """
        return push(self.path, f"hf://{name}" if revision is None else f"hf://{name}@{quote(revision, safe='')}")

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"threads": self.graph.threads, "policy": self.decision.policy}
        return _reopen, (str(self.path.resolve()), self.digest, options)

    def predict(self, inputs: Any) -> Prediction:
        """inputs (B, *input_shape), B >= 1, a data frame or texts -> Prediction; raises `ValueError` for a wrong shape.

        The columns of a data frame are found by the bundle's feature names, whatever their order, and others are left
        out; `ValueError` for missing ones, and for a bundle without feature names. Several inputs are given by name, as
        a mapping of arrays (B, *shape), or as a tuple in the order of the manifest. Texts, in a list, an array or a
        column, are read by the bundle's tokenizer.

        An example for which the network's output is not finite is rejected whatever the threshold, with an infinite
        score; its other values are the network's. `Prediction.finite` marks such examples, `check_finite` raises for
        them.
        """
        inputs = self.inputs_of(inputs)
        outputs = self.graph.outputs(inputs)
        with np.errstate(invalid="ignore", over="ignore"):
            return self.decision.predict(outputs, self._outside(inputs))

    def inputs_of(self, inputs: Any) -> Array:
        """What `predict` takes -> (B, *input_shape) as the network takes it; raises `ValueError`."""
        if self.reader is not None and is_frame(inputs):
            raise ValueError("inputs: found a data frame, expected texts, such as frame['text']")
        texts = [inputs] if isinstance(inputs, str) else texts_of(inputs)
        return _numbers(inputs, self.manifest.input) if texts is None else self._read(texts)

    def _read(self, texts: Sequence[Any]) -> Array:
        if self.reader is None:
            raise ValueError(
                "inputs: found texts, expected numbers: the bundle has no tokenizer; fit it with "
                "fit_bundle(..., tokenizer=...)"
            )
        return self.reader.read(texts, "inputs").array(self.manifest.input)

    def _outside(self, inputs: Array) -> Array | None:
        return None if self.range_check is None else self.range_check.outside(inputs)


def _reader_of(bundle: Bundle) -> TextReader | None:
    """The bundle's tokenizer; `BundleError` for one that cannot be used."""
    if bundle.tokenizer is None:
        return None
    try:
        return TextReader(bundle.tokenizer, *bundle.manifest.input.pieces[0].shape)
    except (TokenizerError, TextError) as error:
        problem = str(error)
        remedy = "install it" if problem == NEED_TOKENIZERS else "fit the bundle again"
        raise BundleError(bundle.path / TOKENIZER, problem, remedy) from None


def _numbers(inputs: Any, spec: InputSpec) -> Array:
    """Arrays, several by name or in order, or a data frame, as the network takes them."""
    values = inputs
    if is_frame(inputs):
        values = frame_array(inputs, spec.feature_names, "inputs")
    elif isinstance(inputs, tuple) and spec.parts is not None:
        if len(inputs) != len(spec.parts):
            names = ", ".join(repr(part.name) for part in spec.parts)
            raise ValueError(f"inputs: found {len(inputs)} arrays, expected those of {names}, in this order")
        named = {part.name: value for part, value in zip(spec.parts, inputs, strict=True)}
        values = packed(named, spec.parts, "inputs")
    elif isinstance(inputs, Mapping):
        if spec.parts is None:
            found = ", ".join(map(repr, inputs))
            raise ValueError(f"inputs: found {found!s:.100}, expected one array; of columns, a data frame")
        values = packed(inputs, spec.parts, "inputs")
    given = numbers_of(values, "inputs")
    if spec.dtype == "int64" and given.dtype.kind == "f" and not (given == np.trunc(given)).all():
        place = np.argwhere(given != np.trunc(given))[0].tolist()
        raise ValueError(f"inputs: found {given[*place]:g} at {place}, expected whole numbers, such as of tokens")
    array: Array = np.ascontiguousarray(given, np.dtype(spec.dtype))
    if array.shape[1:] != spec.shape or not len(array):
        shape = ", ".join(map(str, ("n", *spec.shape)))
        raise ValueError(f"inputs: found shape {array.shape}, expected ({shape}) of at least one example")
    return array


def _reopen(path: str, digest: str, options: dict[str, Any]) -> Predictor:
    """The predictor that was pickled; raises `BundleError` where the path holds another bundle now."""
    bundle = read_bundle(path)
    if bundle.digest != digest:
        problem = f"found a bundle of digest {bundle.digest}, expected the one that was pickled, {digest}"
        raise BundleError(bundle.path, problem, "load it again with Predictor.load")
    return Predictor(bundle, **options)
