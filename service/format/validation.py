"""An option or setting that pydantic has refused, told in one line."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from .text import suggestion

# pydantic's errors in other words.
BOUNDS = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
EXPECTED = {
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "a finite number"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("byte_size", "byte_size_unit"), "a number of bytes, such as '2GiB'"),
    "string_type": "text",
    "string_too_short": "at least one character",
    "string_too_long": "fewer characters",
    "string_pattern_mismatch": "no '/' in it",
    **dict.fromkeys(("tuple_type", "sequence_str", "is_instance_of"), "a list"),
    "too_short": "at least one entry",
    "dict_type": "a mapping of names to values",
    "path_type": "a path",
    "missing": "one more value",
}
# The same in the words of JSON.
JSON_EXPECTED = {
    **EXPECTED,
    **dict.fromkeys(("dataclass_type", "dict_type", "model_type", "model_attributes_type"), "an object"),
    "list_type": "a list",
}
WORD = re.compile(r"'([^']*)'")


def refused_value(error: ValidationError) -> tuple[str, str]:
    """The name of the first option that is wrong ("" for several together), and what was found and expected."""
    first, *others = error.errors(include_url=False)
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "value_error":
        return name, first["msg"].removeprefix("Value error, ")
    same = [first, *(other for other in others if other["loc"][:1] == first["loc"][:1])]
    expected = " or ".join(dict.fromkeys(map(expected_of, same)))
    named = [word for one in same if one["type"] == "literal_error" for word in WORD.findall(one["ctx"]["expected"])]
    hint = suggestion(first["input"], named) if isinstance(first["input"], str) else ""
    return name, f"found {first['input']!r:.100}{hint}, expected {expected}"


def unknown_name(error: ValidationError, known: Iterable[str]) -> str | None:
    """The first option's name with what was meant, where there is no such option."""
    first = error.errors(include_url=False)[0]
    if first["type"] != "extra_forbidden":
        return None
    name = str(first["loc"][0])
    return f"{name}: unknown option{suggestion(name, known)}"


def in_one_line(error: ValidationError, known: Iterable[str], where: str = "") -> str:
    """The first option that is wrong, and everything that it could have been; known: the names of the options there
    are, which `where` lists."""
    unknown = unknown_name(error, known)
    if unknown is not None:
        return f"{unknown}; {where}" if where else unknown
    name, problem = refused_value(error)
    return problem if not name or problem.startswith(f"{name}:") else f"{name}: {problem}"


def refused_field(one: Any, known: Iterable[str]) -> str:
    """What is wrong with a field of a JSON object, without its value; known: the names of the fields there are."""
    names = " or ".join(map(repr, known))
    if one["type"] == "extra_forbidden":
        return f"unknown field{suggestion(str(one['loc'][-1]), known)}, expected {names}"
    if not one["loc"] and one["type"] == "model_type":
        return f"expected an object with {names}"
    if one["type"] == "missing":
        return "missing"
    if one["type"] == "value_error":
        return str(one["msg"]).removeprefix("Value error, ")
    return f"expected {expected_of(one, JSON_EXPECTED)}"


def expected_of(one: Any, words: Mapping[str, str] = EXPECTED) -> str:
    """What one of pydantic's errors says of the value that it wants."""
    if one["type"] in BOUNDS:
        return f"a number {one['msg'].removeprefix('Input should be ')}"
    if one["type"] == "too_long":
        return f"at most {one['ctx']['max_length']} values"
    return words.get(one["type"]) or str(one["msg"]).removeprefix("Input should be ")
