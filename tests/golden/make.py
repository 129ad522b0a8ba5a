"""Make the golden bundles of a format version: once, and then kept for ever.

    python tests/golden/make.py tests/golden/v1_2

makes `v1_2`, a fit with a Cholesky factor, and `v1_2_low_rank`, the same posterior to low rank, with every optional
field of the manifest and a report. Refuses to overwrite. Readers of every later release must serve the bundles and give
the answers kept beside them.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from offline.laplace.low_rank import low_rank
from offline.laplace.posterior import Spectrum
from offline.recipes.load import load_recipe
from offline.recipes.run import fit_recipe
from service import Predictor, read_bundle, write_bundle
from service.bundle import Candidate, CholeskyPosterior, LowRankPosterior, Posterior, Tried

RECIPE = Path(__file__).parents[2] / "examples" / "digits.py"
SAMPLE, TOLERANCE = 100, 0.05


def main(folder: Path) -> None:
    reduced = folder.with_name(f"{folder.name}_low_rank")
    for made in (folder, reduced):
        if made.exists():
            raise SystemExit(f"{made}: exists; golden bundles are never made twice")
    folder.mkdir()
    fit_recipe(RECIPE, folder / "bundle", {"subnetwork_size": 100, "name": "golden-digits"})
    inputs = load_recipe(RECIPE).module.test_data()[0].numpy()
    reduced.mkdir()
    write_low_rank(folder / "bundle", reduced / "bundle", inputs[-SAMPLE:])
    asked = inputs[:4].copy()
    asked[3] = 1 - asked[3]
    for made in (folder, reduced):
        write_answers(made, asked)


def write_low_rank(source: Path, out: Path, inputs: np.ndarray) -> None:
    """H = (L L^T)^-1 - lambda_S I once more, to low rank; and by hand, what a fit would search and compare."""
    bundle = read_bundle(source)
    assert isinstance(bundle.posterior, CholeskyPosterior)
    used, inverse = bundle.manifest.prior.used, np.linalg.inv(bundle.posterior.scale_tril.astype(np.float64))
    spectrum = Spectrum.of(torch.as_tensor(inverse.T @ inverse - used * np.eye(len(inverse))))
    jacobian = torch.as_tensor(Predictor.load(source).mean_and_jacobian(inputs)[1])
    chosen = low_rank(spectrum.values, spectrum.vectors, used, jacobian, TOLERANCE)
    tried = Tried((10.0, 100.0, 1000.0), (-0.1, -0.0625, -0.05), (-900.0, -800.0, -850.0), -0.0375)
    candidates = (
        Candidate("random", 100, 21.0, 100.0, -0.0625, -1.5, 0.875, chosen=True),
        Candidate("last-layer", 100, 1.0, 50.0, -0.0625, -1.75, 0.75, chosen=False),
    )
    manifest = replace(
        bundle.manifest,
        prior=replace(bundle.manifest.prior, method="budget", budget=0.05, tried=tried),
        posterior=Posterior("low-rank", len(inverse), 0.0, rank=chosen.rank, tolerance=TOLERANCE, error=chosen.error),
        selection=replace(
            bundle.manifest.selection,
            explanation="The better of two under shift.",
            candidates=candidates,
            kinds="weights",
            within=("0", "2", "6"),
        ),
        verification=None,
    )
    write_bundle(
        out,
        manifest,
        model=bundle.model,
        posterior=LowRankPosterior(chosen.eigenvalues, chosen.eigenvectors, used),
        subnetwork_indices=bundle.subnetwork_indices,
        calibration_scores=bundle.calibration_scores,
        reference=bundle.reference,
        report=b"<!doctype html>\n<title>golden-digits</title>\n<p>A report for people.</p>\n",
    )


def write_answers(folder: Path, inputs: np.ndarray) -> None:
    predictor = Predictor.load(folder / "bundle")
    prediction = predictor.predict(inputs)
    assert prediction.probabilities is not None
    answers = {
        "digest": predictor.digest,
        "inputs": inputs.tolist(),
        "mean": prediction.mean.tolist(),
        "variance": prediction.variance.tolist(),
        "probabilities": prediction.probabilities.tolist(),
        "score": prediction.score.tolist(),
        "p_value": prediction.p_value.tolist(),
        "rejected": prediction.rejected.tolist(),
    }
    (folder / "answers.json").write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
