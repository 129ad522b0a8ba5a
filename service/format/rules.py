"""What every part of a manifest shares: its errors, its fields, its rules. Pure standard library.

A part is a frozen dataclass. Its constructor checks what its fields must be beside each other; pydantic, which reads
parts from JSON, checks the type and the range of each. Nothing here imports pydantic, so that decoder processes, which
receive an `InputSpec`, do without.
"""

import dataclasses
from typing import Any, ClassVar


class ManifestError(ValueError):
    """A manifest field is missing, unknown, or holds a wrong value."""


class FieldNameError(ManifestError):
    """A part has an unknown field, or lacks one."""

    def __init__(self, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(f"{name}: {problem}")


def check_fields(where: str, part: object, *rules: tuple[str, bool, str]) -> None:
    """`ManifestError` for the first rule (field, whether it holds, what is expected) that does not hold."""
    for name, holds, expected in rules:
        if not holds:
            place = f"{where}.{name}".lstrip(".")
            raise ManifestError(f"{place}: found {getattr(part, name)!r:.100}, expected {expected}")


class Part:
    """Base of the dataclasses of a manifest: how pydantic reads them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {
        "strict": True,
        "extra": "forbid",
        "allow_inf_nan": False,
        "json_schema_serialization_defaults_required": True,
    }

    # Fields that a document leaves out where they are null.
    left_out: ClassVar[frozenset[str]] = frozenset()
    # Fields that earlier bundles have, and that nothing reads.
    retired: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # called by pydantic only

        return core_schema.with_info_before_validator_function(cls._check_names, handler(source))

    @classmethod
    def _check_names(cls, data: Any, info: Any) -> Any:
        """Demand every field, also those with a default, and refuse any other but those that are retired.

        The context is whether the document is of a later minor version than this reader: its unknown fields are
        ignored. Lists become tuples, as the fields are.
        """
        if not isinstance(data, dict):
            return data
        later: bool = info.context
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        for name in data:
            if name not in names and name not in cls.retired and not later:
                raise FieldNameError(f"{name:.100}", "unknown field")
        for name in names:
            if name not in data and name not in cls.left_out:
                raise FieldNameError(name, "missing field")
        return {name: _tuples(data[name]) for name in names if name in data}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
