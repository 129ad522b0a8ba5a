"""The paper's baselines, each a function of a trained network and its data that gives a `Method`."""
