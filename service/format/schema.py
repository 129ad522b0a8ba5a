"""`python -m demur.service.format.schema`: write the JSON Schema of manifest.json to `service/bundle.schema.json`."""

import inspect
import json
from pathlib import Path
from typing import Any

from .manifest import FORMAT_VERSION, Manifest
from .manifest_json import manifest_adapter
from .rules import Part
from .seal import SEAL

SCHEMA_FILE = Path(__file__).parents[1] / "bundle.schema.json"


def manifest_schema() -> dict[str, Any]:
    """Of a manifest of this version, seal included. Rules between fields stand in BUNDLE.md alone."""
    schema = manifest_adapter().json_schema(mode="serialization")
    definitions = {Manifest.__name__: schema, **schema["$defs"]}
    for part in Part.__subclasses__():  # pydantic before 2.13 leaves the descriptions out
        definition = definitions[part.__name__]
        definition["description"] = inspect.getdoc(part)
        definition["properties"] |= {name: {"deprecated": True} for name in part.retired}
        definition["required"] = [name for name in definition["required"] if name not in part.left_out]
    schema["properties"][SEAL] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    schema["required"].append(SEAL)
    schema["properties"]["format_version"]["const"] = FORMAT_VERSION
    draft, title = "https://json-schema.org/draft/2020-12/schema", f"Demur bundle, manifest.json {FORMAT_VERSION}"
    return {"$schema": draft, **schema, "title": title}


def schema_text() -> str:
    """What `SCHEMA_FILE` holds."""
    return json.dumps(manifest_schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text())
