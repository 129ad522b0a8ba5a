"""A predictor in a user's own program: sent to other processes, and with no more threads than it was given."""

import json
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from service.bundle import BundleError
from service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.server import ROOT, TIMEOUT, environment

INPUTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def mean_of(predictor: Predictor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return predictor.predict(INPUTS).mean


def test_another_process_gets_the_same_predictor(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path, threads=1, jacobian_bytes=1000, plain_too=True)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply_async(mean_of, (predictor,)).get(TIMEOUT)
    np.testing.assert_array_equal(found, predictor.predict(INPUTS).mean)
    copy = pickle.loads(pickle.dumps(predictor))
    assert (copy.digest, copy.threads, copy.chunk_rows) == (predictor.digest, 1, predictor.chunk_rows)
    np.testing.assert_array_equal(copy.predict_plain(INPUTS).mean, predictor.predict_plain(INPUTS).mean)


def test_a_bundle_that_was_replaced_meanwhile_is_refused(tmp_path: Path) -> None:
    write_linear(tmp_path / "a", outputs=3, spec=FEATURE_SPEC, seed=0)
    sent = pickle.dumps(Predictor.load(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "old")
    write_linear(tmp_path / "a", outputs=3, spec=FEATURE_SPEC, seed=1)
    with pytest.raises(BundleError, match="expected the one that was pickled"):
        pickle.loads(sent)


COUNTING = """
import json, sys, threading
import numpy as np, threadpoolctl
from service import Predictor
from service.maths.posterior_factor import CholeskyPosterior

def threads():
    return [one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]

def noting(posterior, jacobian):
    noted.append(threads())
    return variance(posterior, jacobian)

before, seen, noted = threads(), {}, []
variance, CholeskyPosterior.variance = CholeskyPosterior.variance, noting
for wanted in (1, None):
    predictor = Predictor.load(sys.argv[1], threads=wanted)
    predictor.predict(np.zeros((1, 4), np.float32))
    seen[str(wanted)] = noted[-1]
print(json.dumps({"before": before, "seen": seen, "after": threads()}))
"""


def test_numpy_uses_no_more_threads_than_were_given(classification: Synthetic) -> None:
    command = [sys.executable, "-W", "error", "-c", COUNTING, str(classification.path)]
    env = environment(OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2", MKL_NUM_THREADS="2")
    ended = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    if set(found["before"]) != {2}:
        pytest.skip("needs two processors")
    assert found["seen"] == {"1": [1] * len(found["before"]), "None": found["before"]}
    assert found["after"] == found["before"]
