"""Make the golden bundles, and the answers beside them.

    python tests/golden/make.py [--again]

makes `v1`, the ordinary fit; `v1_fixed`, with a prior precision that is given; and `v1_subnetwork`, without added
weights. It refuses to overwrite, but with `--again`: after a change to the format or to the graphs. `v1_top`, with
the variances of the most probable classes, every optional field of the manifest and a report, is of before: fits no
longer make such graphs, and services answer by them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from demur.offline.features import added_weights
from demur.offline.recipes.load import load_recipe
from demur.offline.recipes.run import fit_recipe
from demur.service import Predictor, read_bundle, write_bundle
from demur.service.bundle import README
from demur.service.inference.predictor import Prediction

GOLDEN = Path(__file__).parent
RECIPE = GOLDEN.parents[1] / "examples" / "digits.py"
SET_LEVEL = 0.9
FEATURES = added_weights.FeatureSettings(16, 4)  # of the random features: a smaller graph
COMMON = {"subnetwork_size": 100, "name": "golden-digits"}
BUNDLES: dict[str, dict[str, Any]] = {
    "v1": {},
    "v1_fixed": {"selection": "random", "prior_precision": 100.0},
    "v1_subnetwork": {
        "selection": "random",
        "added_weights": False,
        "uncertainty_budget": 0.005,
        "temperature": "fit",
    },
}


def main(again: bool) -> None:
    folders = {name: GOLDEN / name for name in BUNDLES}
    for folder in folders.values():
        if folder.exists() and not again:
            raise SystemExit(f"{folder}: exists; give --again to make the golden bundles anew")
    added_weights.LINK_FEATURES = added_weights.SCORE_FEATURES = FEATURES
    asked = load_recipe(RECIPE).module.test_data()[0].numpy()[:4].copy()
    asked[3] = 1 - asked[3]
    for name, folder in folders.items():
        folder.mkdir(exist_ok=True)
        fit_recipe(RECIPE, folder / "bundle", {**COMMON, **BUNDLES[name]})
        without_report(folder / "bundle")
        (folder / "bundle" / README).unlink()  # follows from the manifest
        write_answers(folder, asked)


def without_report(path: Path) -> None:
    bundle = read_bundle(path)
    write_bundle(
        path,
        bundle.manifest,
        model=bundle.model,
        posterior=bundle.posterior,
        subnetwork_indices=bundle.subnetwork_indices,
        calibration=bundle.calibration,
    )


def write_answers(folder: Path, inputs: np.ndarray) -> None:
    predictor = Predictor.load(folder / "bundle")
    answers: dict[str, object] = {"digest": predictor.digest, "inputs": inputs.tolist()}
    answers |= answers_of(predictor.predict(inputs))
    if (sets := predictor.decision.sets) is not None:
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
    parser = argparse.ArgumentParser(description="Make the golden bundles.")
    parser.add_argument("--again", action="store_true", help="overwrite those that are there")
    main(parser.parse_args().again)
