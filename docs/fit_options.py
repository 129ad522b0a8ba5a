"""`python -m docs.fit_options`: write the options of a fit, from `FitConfig`, into docs/fitting.md."""

from pathlib import Path

from demur.offline.config import FitConfig
from docs.marked import update_parts

PAGE = Path(__file__).with_name("fitting.md")


def parts() -> dict[str, str]:
    """The generated part of the page by its name."""
    rows = [
        (f"`{name}`", f"`{field.get_default(call_default_factory=True)!r}`", field.description or "")
        for name, field in FitConfig.model_fields.items()
    ]
    table = [("option", "default", "what it does"), ("---",) * 3, *rows]
    return {"fit options": "".join(f"| {' | '.join(row)} |\n" for row in table)}


if __name__ == "__main__":
    update_parts(PAGE, parts())
