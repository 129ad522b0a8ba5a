"""Errors of requests, beside `demur.service.codec.decoding.NotJson` and `demur.service.codec.arrays.InputError`."""

from ..codec.arrays import InputError


class RequestError(InputError):
    """The request is JSON, but breaks the protocol: which field, what was found, what was expected."""


class OutputUnavailable(LookupError):
    """The request asks for an output that a degraded answer lacks."""

    def __init__(self, names: list[str], available: list[str]) -> None:
        self.names, self.available = names, available
        super().__init__(
            f"For lack of time the plain network answered alone, without {', '.join(names)}; try again later, "
            f"or ask for no more than {', '.join(available)}"
        )
