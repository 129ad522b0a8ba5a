"""The toy and the UCI experiments."""

from typing import Any

from docs.paper.markdown import number, table
from docs.paper.results import picture, source

SHARES = ("0.5", "0.03", "0.01")


def toy(result: dict[str, Any]) -> str:
    """How far each method's predictive is from the full covariance's."""
    text = [
        "## Toy regression (figure 2)\n",
        "Mean KL divergence from the predictive of the full covariance, in nats: near the training inputs, and between "
        "and beyond them. The paper shows pictures and no numbers. 2 x 50 ReLU, weights only (D = 2,600), prior "
        f"precision 3 scaled by S / D, {result['setting']['seeds']} seeds.\n",
        source(result),
        picture(result, "Predictives of a toy regression"),
    ]
    for name, methods in result["summary"].items():
        rows = []
        for method, found in methods.items():
            if method == "full":
                continue
            for share, value in sorted(found.items(), key=lambda item: -float(item[0])):
                cells = (
                    f"{number(value[where]['mean'], 3)} ± {number(value[where]['std'], 3)}"
                    for where in ("near", "away")
                )
                rows.append([method, f"{100 * float(share):.3g} %", *cells])
        text.append(f"### {name}\n\n" + table(["method", "weights", "near", "between and beyond"], rows))
    return "\n".join(text)
