"""Types of settings that several sections share."""

from typing import TYPE_CHECKING, Annotated

from pydantic import ByteSize, Field
from pydantic_settings import NoDecode

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[tuple[str, ...], NoDecode]
if TYPE_CHECKING:
    Bytes = Positive
else:  # a number, or one with a unit, as "16MiB"
    Bytes = Annotated[ByteSize, Field(gt=0)]
