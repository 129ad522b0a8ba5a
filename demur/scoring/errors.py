"""What stops a scoring job."""


class ScoringError(ValueError):
    """Inputs, an output or a job that cannot be scored: the message says what was found, expected, and what to do."""
