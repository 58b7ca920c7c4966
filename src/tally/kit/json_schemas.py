"""Generates the JSON schemas of msgspec structs, in a form that client generators understand."""

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

Json = dict[str, Any]

REFERENCE: Final = "#/components/schemas/"


class ComponentSchemas:
    """The JSON schemas of all referenced structs, each defined once.

    Structs of queries are no components: their fields become parameters.
    """

    def __init__(self, kinds: Sequence[Any], queries: Collection[Any]) -> None:
        kinds = [*kinds, *queries]
        schemas, self.components = msgspec.json.schema_components(
            kinds, ref_template=REFERENCE + "{name}"
        )
        self._by_kind = {id(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
        self._queries: dict[Any, Json] = {
            query: self.components.pop(self.schema(query)["$ref"].removeprefix(REFERENCE))
            for query in queries
        }
        for component in self.components.values():
            _describe_defaults(component.get("properties", {}))
        _open_objects([self.components, schemas])

    def schema(self, kind: Any) -> Json:
        return self._by_kind[id(kind)]

    def query(self, kind: Any) -> Json:
        return self._queries[kind]


def _describe_defaults(properties: dict[str, Json]) -> None:
    """Move defaults to the descriptions: openapi-typescript requires fields with a default."""
    for schema in properties.values():
        default = schema.pop("default", None)
        if default:
            about = [schema["description"]] if "description" in schema else []
            schema["description"] = ". ".join([*about, f"Default: {default}"])


def _open_objects(node: Any) -> None:
    """Allow any member in objects without properties; otherwise, clients expect no member."""
    if isinstance(node, list):
        for child in node:
            _open_objects(child)
    elif isinstance(node, dict):
        for child in node.values():
            _open_objects(child)
        if node.get("type") == "object" and "properties" not in node:
            node.setdefault("additionalProperties", True)
