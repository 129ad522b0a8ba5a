"""A bundle of many weights: written and read without several times the memory of its matrix.

What Python and NumPy allocate is counted; a buffer inside safetensors, half a matrix while a factor is written, is not.
"""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from demur.service.bundle import (
    CalibrationTensors,
    CholeskyPosterior,
    InputSpec,
    pack_lower_triangle,
    read_bundle,
    unpack_lower_triangle,
    write_bundle,
)
from tests.support.bundles import even_outcomes
from tests.support.manifests import make_manifest

SIZE = 1200
MATRIX_BYTES = 4 * SIZE**2


class Peak:
    """Most memory that was held at once within `measured`, beyond what was held before, in float32 matrices."""

    matrices = float("nan")


@contextmanager
def measured() -> Iterator[Peak]:
    peak = Peak()
    tracemalloc.start()
    try:
        yield peak
        peak.matrices = tracemalloc.get_traced_memory()[1] / MATRIX_BYTES
    finally:
        tracemalloc.stop()


def test_packing_and_unpacking_need_only_what_they_return() -> None:
    matrix = np.tril(np.random.default_rng(0).normal(size=(SIZE, SIZE)))
    with measured() as packing:
        packed = pack_lower_triangle(matrix, np.float32)
    assert packing.matrices < 0.55
    assert packed.dtype == np.float32
    with measured() as unpacking:
        unpacked = unpack_lower_triangle(packed, SIZE)
    assert unpacking.matrices < 1.05
    np.testing.assert_array_equal(unpacked, matrix.astype(np.float32))


def test_writing_and_reading_take_less_than_two_matrices(tmp_path: Path) -> None:
    """Of float32, besides the float64 one that is given; what is read holds one itself."""
    posterior, scores = CholeskyPosterior(np.eye(SIZE)), np.linspace(0.1, 0.9, 20)
    manifest = make_manifest(
        outputs=2,
        parameter_count=SIZE,
        size=SIZE,
        spec=InputSpec(shape=(1,)),
        scores=scores,
    )
    with measured() as writing:
        write_bundle(
            tmp_path / "bundle",
            manifest,
            model=b"never opened here",
            posterior=posterior,
            subnetwork_indices=np.arange(SIZE),
            calibration=CalibrationTensors(scores, even_outcomes(scores, manifest.outputs)),
        )
    with measured() as reading:
        read_bundle(tmp_path / "bundle")
    assert writing.matrices < 1.25
    assert reading.matrices < 1.75
