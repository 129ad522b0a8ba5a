"""Quality under shift against the price of a prediction."""
