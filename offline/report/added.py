"""What the report says of added weights: what they read, and how much uncertainty they have."""

from demur.service.bundle import AddedWeights, Manifest

from .text import number


def added_rows(manifest: Manifest) -> dict[str, str]:
    """Their layers, their variance, and what the uncertainty costs; none for a bundle without added weights."""
    added = manifest.added_weights
    if added is None:
        return {}
    return {
        "Layers whose inputs they read": _listed(added.layers),
        "Layers of the distance": _listed(added.distance_layers),
        "Random features": f"{added.features:,}",
        **_usual(added),
        "Cost on held-out data": f"{number(added.cost)} nats, standard error {number(added.cost_error)}",
        "Uncertainty budget": f"{number(added.budget)} nats",
    }


def _usual(added: AddedWeights) -> dict[str, str]:
    """How large variances are: at twice the threshold the gate leaves half of u, which is the threshold."""
    if added.gate is None:
        return {"Prior variance of an output": number(added.prior_variance)}
    return {"Variance of an input twice as unusual as nine in ten": number(added.gate.threshold)}


def _listed(layers: tuple[str, ...]) -> str:
    names = {"": "the network's inputs", ".": "their texture"}
    return ", ".join(names.get(layer, layer) for layer in layers)
