"""What no fit can take, refused with the place in the documentation that says what is supported."""

SUPPORTED = "docs/fitting.md#what-is-supported"


class UnsupportedModelError(ValueError):
    """A model that cannot be used as it is."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem} (see {SUPPORTED})")
