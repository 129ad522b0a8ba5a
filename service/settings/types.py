"""Types of settings that several sections share."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import NoDecode

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[tuple[str, ...], NoDecode]
