"""A predictor in a user's own program: sent to other processes."""

import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import pytest

from demur.service.bundle import BundleError
from demur.service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.server import TIMEOUT

INPUTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def mean_of(predictor: Predictor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return predictor.predict(INPUTS).mean


def test_another_process_gets_the_same_predictor(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path, threads=1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply_async(mean_of, (predictor,)).get(TIMEOUT)
    np.testing.assert_array_equal(found, predictor.predict(INPUTS).mean)
    copy = pickle.loads(pickle.dumps(predictor))
    assert (copy.digest, copy.graph.threads) == (predictor.digest, 1)
    np.testing.assert_array_equal(copy.predict(INPUTS).mean, predictor.predict(INPUTS).mean)


def test_a_bundle_that_was_replaced_meanwhile_is_refused(tmp_path: Path) -> None:
    write_linear(tmp_path / "a", outputs=3, spec=FEATURE_SPEC, seed=0)
    sent = pickle.dumps(Predictor.load(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "old")
    write_linear(tmp_path / "a", outputs=3, spec=FEATURE_SPEC, seed=1)
    with pytest.raises(BundleError, match="expected the one that was pickled"):
        pickle.loads(sent)
