"""Make the golden bundles of a format version: once, and then kept for ever.

    python tests/golden/make.py tests/golden/v1_8

makes `v1_8`, a fit with a Cholesky factor, a reduced head and a fused score with feature scores; `v1_8_low_rank`,
weights anywhere to low rank with the variances of the most probable classes, every optional field of the
manifest and a report; and `v1_8_differences`, with the link for differences of logits. Refuses to overwrite. Readers of
every later release must serve the bundles and give the answers kept beside them.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from offline.features import class_gaussian
from offline.recipes.load import load_recipe
from offline.recipes.run import fit_recipe
from service import Predictor, read_bundle, write_bundle
from service.bundle import Bundle, Candidate, Manifest, ReducedHead, Tried
from service.inference.predictor import Prediction

RECIPE = Path(__file__).parents[2] / "examples" / "digits.py"
TOLERANCE = 0.05
SET_LEVEL = 0.9
DIRECTIONS = 4  # of the feature scores: a smaller graph


def main(folder: Path) -> None:
    reduced, differences = (folder.with_name(f"{folder.name}_{name}") for name in ("low_rank", "differences"))
    for made in (folder, reduced, differences):
        if made.exists():
            raise SystemExit(f"{made}: exists; golden bundles are never made twice")
    class_gaussian.MOST_DIRECTIONS = DIRECTIONS
    options = {"subnetwork_size": 100, "name": "golden-digits"}
    few = {"posterior": "low-rank", "posterior_tolerance": TOLERANCE, "variance_of": "top", "top_outputs": 3}
    few |= {"selection": "random"}
    linked = {"selection": "random", "variance_of": "differences"}
    for made, own in ((folder, {"score": "fused", "feature_scores": True}), (reduced, few), (differences, linked)):
        made.mkdir()
        fit_recipe(RECIPE, made / "bundle", {**options, **own})
    add_reduced_head(folder / "bundle")
    fill_in(reduced / "bundle")
    plain = read_bundle(differences / "bundle")
    rewrite(plain.path, plain, plain.manifest)  # without its report
    asked = load_recipe(RECIPE).module.test_data()[0].numpy()[:4].copy()
    asked[3] = 1 - asked[3]
    for made in (folder, reduced, differences):
        write_answers(made, asked)


def add_reduced_head(path: Path) -> None:
    """By hand, since a head that is worth it is large; the graph computes the exact variances, within the bound."""
    bundle = read_bundle(path)
    assert bundle.manifest.graph is not None
    graph = replace(
        bundle.manifest.graph, reduced=ReducedHead(10, error_bound=0.0078125, error=0.0009765625, examples=90)
    )
    rewrite(path, bundle, replace(bundle.manifest, graph=graph))


def fill_in(path: Path) -> None:
    """By hand, what a fit would search and compare, and a report."""
    bundle = read_bundle(path)
    tried = Tried((10.0, 100.0, 1000.0), (-0.1, -0.0625, -0.05), (-900.0, -800.0, -850.0), -0.0375)
    candidates = (
        Candidate("random", 100, 21.0, 100.0, -0.0625, -1.5, 0.875, chosen=True),
        Candidate("last-layer", 100, 1.0, 50.0, -0.0625, -1.75, 0.75, chosen=False),
    )
    manifest = replace(
        bundle.manifest,
        prior=replace(bundle.manifest.prior, method="budget", budget=0.05, tried=tried),
        selection=replace(
            bundle.manifest.selection,
            explanation="The better of two under shift.",
            candidates=candidates,
            kinds="weights",
            within=("0", "2", "6"),
        ),
        verification=None,
    )
    rewrite(path, bundle, manifest, b"<!doctype html>\n<title>golden-digits</title>\n<p>A report for people.</p>\n")


def rewrite(path: Path, bundle: Bundle, manifest: Manifest, report: bytes | None = None) -> None:
    write_bundle(
        path,
        manifest,
        model=bundle.model,
        posterior=bundle.posterior,
        subnetwork_indices=bundle.subnetwork_indices,
        calibration=bundle.calibration,
        report=report,
    )


def write_answers(folder: Path, inputs: np.ndarray) -> None:
    predictor = Predictor.load(folder / "bundle")
    answers: dict[str, object] = {"digest": predictor.digest, "inputs": inputs.tolist()}
    answers |= answers_of(predictor.predict(inputs))
    if (sets := predictor.sets) is not None:
        answers["sets"] = sets.members(np.asarray(answers["probabilities"]), SET_LEVEL).tolist()
    (folder / "answers.json").write_text(json.dumps(answers) + "\n")


def answers_of(prediction: Prediction) -> dict[str, object]:
    assert prediction.probabilities is not None
    return {
        "mean": prediction.mean.tolist(),
        "variance": prediction.variance.tolist(),
        "probabilities": prediction.probabilities.tolist(),
        "score": prediction.score.tolist(),
        "p_value": prediction.p_value.tolist(),
        "rejected": prediction.rejected.tolist(),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
