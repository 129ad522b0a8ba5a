"""What the posteriors of these experiments may spend: the paper's setting, and the default of `FitConfig`."""

from typing import Any

BUDGET, SMALL_BUDGET = 0.05, 0.005  # nats of held-out log-likelihood; the small one is the default
# As the paper has it: a posterior over weights of the network alone, and no temperature.
PAPERS: dict[str, Any] = {"added_weights": False, "uncertainty_budget": BUDGET, "temperature": 1.0}
