"""Make the golden bundle of a format version: once, and then kept for ever.

    python tests/golden/make.py tests/golden/v1

Refuses to overwrite. Readers of every later release must serve the bundle and give the answers kept beside it.
"""

import json
import sys
from pathlib import Path

from offline.recipe import load_recipe
from offline.run import fit_recipe
from service import Predictor

RECIPE = Path(__file__).parents[2] / "examples" / "digits.py"


def main(folder: Path) -> None:
    if folder.exists():
        raise SystemExit(f"{folder}: exists; golden bundles are never made twice")
    folder.mkdir()
    fit_recipe(RECIPE, folder / "bundle", {"subnetwork_size": 100, "name": "golden-digits"})
    inputs = load_recipe(RECIPE).module.test_data()[0][:4].numpy()
    inputs[3] = 1 - inputs[3]
    predictor = Predictor.load(folder / "bundle")
    prediction = predictor.predict(inputs)
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
