"""What the report says of added weights: what they read, and how much uncertainty they have."""

from demur.service.bundle import Manifest

from .text import number


def added_rows(manifest: Manifest) -> dict[str, str]:
    """Their layers, their prior, and what the uncertainty costs; none for a bundle without added weights."""
    added = manifest.added_weights
    if added is None:
        return {}
    return {
        "Layers whose inputs they read": _listed(added.layers),
        "Layers of the distance": _listed(added.distance_layers),
        "Random features": f"{added.features:,}",
        "Prior variance of an output": number(added.prior_variance),
        "Cost on held-out data": f"{number(added.cost)} nats, standard error {number(added.cost_error)}",
        "Uncertainty budget": f"{number(added.budget)} nats",
    }


def _listed(layers: tuple[str, ...]) -> str:
    names = {"": "the network's inputs", ".": "their texture"}
    return ", ".join(names.get(layer, layer) for layer in layers)
