"""Errors of requests, beside `demur.service.codec.decoding.NotJson` and `demur.service.codec.arrays.InputError`."""

from ..codec.arrays import InputError


class RequestError(InputError):
    """The request is JSON, but breaks the protocol: which field, what was found, what was expected."""
