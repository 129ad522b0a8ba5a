"""What can be wrong with a request, beyond `service.codec.decoding.NotJson` and `service.codec.arrays.InputError`."""

from service.codec.arrays import InputError


class RequestError(InputError):
    """The request is JSON, but not as the protocol says: which field, what was found, what was expected."""


class OutputUnavailable(LookupError):
    """An output was asked for that a degraded answer does not have."""

    def __init__(self, names: list[str], available: list[str]) -> None:
        self.names, self.available = names, available
        super().__init__(
            f"For lack of time the plain network answered alone, without {', '.join(names)}; try again later, "
            f"or ask for no more than {', '.join(available)}"
        )
