"""Generates the JSON Schema and the Swift struct of `content-state` from the display state.

Run `python -m tests.cricket.content_state` to update docs/content-state.schema.json and
docs/live-activities.md.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from tally.cricket.model.display import DisplayState
from tally.cricket.service.activities.match_payloads import ATTRIBUTES_TYPE

DOCS: Final = Path(__file__).parents[2] / "docs"
SCHEMA_FILE: Final = DOCS / "content-state.schema.json"
SWIFT_PAGE: Final = DOCS / "live-activities.md"
_SWIFT_BLOCK: Final = re.compile(r"(?<=<!-- swift -->\n\n```swift\n).*?(?=```\n)", re.DOTALL)
_SWIFT_TYPES: Final[dict[type, str]] = {
    inspect.StrType: "String",
    inspect.IntType: "Int",
    inspect.BoolType: "Bool",
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a content state."""
    generated = msgspec.json.schema(DisplayState)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "content-state of a cricket Live Activity",
        **generated,
    }


def render_schema() -> str:
    return json.dumps(schema(), indent=2) + "\n"


def render_swift() -> str:
    """Return the Swift type that decodes a content state."""
    structs: dict[str, str] = {}
    _add_struct("ContentState", DisplayState, structs)
    attributes = "\n".join(f"    let {name}: String" for name in ("matchId", "teamId", "title"))
    nested = "\n\n".join(structs.values())
    return (
        f"import ActivityKit\n\nstruct {ATTRIBUTES_TYPE}: ActivityAttributes {{\n"
        f"{attributes}\n\n{nested}\n}}\n"
    )


def render_page(page: str) -> str:
    return _SWIFT_BLOCK.sub(lambda _: render_swift(), page, count=1)


def _add_struct(name: str, part: type, structs: dict[str, str]) -> None:
    structs[name] = ""
    described = inspect.type_info(part)
    assert isinstance(described, inspect.StructType)
    fields = [
        f"        let {field.encode_name}: {_swift_type(field.type, structs).rstrip('?')}"
        f"{'' if field.required else '?'}\n"
        for field in described.fields
    ]
    structs[name] = f"    struct {name}: Codable, Hashable {{\n{''.join(fields)}    }}"


def _swift_type(kind: inspect.Type, structs: dict[str, str]) -> str:
    """Return the Swift name of a type; adds the structs that it uses."""
    if isinstance(kind, inspect.UnionType):
        (inner,) = (part for part in kind.types if not isinstance(part, inspect.NoneType))
        return f"{_swift_type(inner, structs)}?"
    if isinstance(kind, inspect.VarTupleType):
        return f"[{_swift_type(kind.item_type, structs)}]"
    if isinstance(kind, inspect.TupleType):
        return f"[{_swift_type(kind.item_types[0], structs)}]"
    if isinstance(kind, inspect.StructType):
        name = kind.cls.__name__.replace("Display", "")
        if name not in structs:
            _add_struct(name, kind.cls, structs)
        return name
    return _SWIFT_TYPES[type(kind)]


if __name__ == "__main__":
    SCHEMA_FILE.write_text(render_schema(), encoding="utf-8")
    SWIFT_PAGE.write_text(render_page(SWIFT_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
