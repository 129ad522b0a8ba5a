"""The service under load, other servers around the same predictor, damaged input, and a long run."""
