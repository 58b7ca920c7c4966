"""Parses and applies query parameters: `include`, `filter[…]`, `fields[…]`, `sort`, `page`."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

RELATIONS: Final[Mapping[str, frozenset[str]]] = {
    "fixtures": frozenset(
        {
            "balls",
            "runs",
            "bowling",
            "batting",
            "venue",
            "stage",
            "season",
            "league",
            "visitorteam",
            "localteam",
            "scoreboards",
        }
        | {"manofmatch", "tosswon", "lineup", "winnerteam"}
    ),
    "balls": frozenset({"batsman", "bowler", "batsmanout", "score"}),
    "batting": frozenset({"batsman", "bowler", "result"}),
    "bowling": frozenset({"bowler"}),
    "seasons": frozenset({"teams"}),
}
# Nested relations that are always included.
ALWAYS_INCLUDED: Final[Mapping[str, frozenset[str]]] = {
    "balls": frozenset({"batsman", "bowler", "score"})
}
FILTERS: Final = frozenset(
    {
        "id",
        "league_id",
        "season_id",
        "stage_id",
        "localteam_id",
        "visitorteam_id",
        "status",
        "starts_between",
        "name",
        "code",
        "type",
    }
)


class InvalidQuery(Exception):
    """A query parameter that SportMonks does not support."""


class SportMonksQuery(msgspec.Struct, frozen=True):
    """The validated parameters of a request."""

    includes: Mapping[str, frozenset[str]] = {}
    filters: Mapping[str, tuple[str, ...]] = {}
    fields: Mapping[str, frozenset[str]] = {}
    sort: tuple[str, ...] = ()
    page: int = 1

    def select(self, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Filter and sort items."""
        selected = [
            item
            for item in items
            if all(_matches(item, name, values) for name, values in self.filters.items())
        ]
        for field in reversed(self.sort):
            name = field.removeprefix("-")
            selected.sort(key=lambda item: _sort_key(item.get(name)), reverse=field.startswith("-"))
        return selected

    def project(self, item: Any, kind: str) -> Any:
        """Reduce an item to the requested relations and fields."""
        if not isinstance(item, dict):
            return item
        hidden = RELATIONS.get(kind, frozenset()) - self.includes.keys()
        fields = self.fields.get(item.get("resource", kind))
        projected = {}
        for name, value in item.items():
            if name in hidden or (
                fields is not None
                and name not in fields
                and name not in self.includes
                and name != "resource"
            ):
                continue
            projected[name] = self._related(name, value) if name in self.includes else value
        return projected

    def _related(self, name: str, value: Any) -> Any:
        included = self.includes[name] | ALWAYS_INCLUDED.get(name, frozenset())
        hidden = RELATIONS.get(name, frozenset()) - included

        def trim(row: Any) -> Any:
            if not isinstance(row, dict):
                return row
            fields = self.fields.get(row.get("resource", name))
            return {
                key: inner
                for key, inner in row.items()
                if key not in hidden
                and (fields is None or key in fields or key in included or key == "resource")
            }

        return [trim(row) for row in value] if isinstance(value, list) else trim(value)


def parse_query(parameters: Mapping[str, str], kind: str) -> SportMonksQuery:
    """Parse the query of a request for `kind`; raises InvalidQuery."""
    filters, fields = {}, {}
    for name, value in parameters.items():
        key = name.partition("[")[2].removesuffix("]")
        if name.startswith("filter["):
            if key not in FILTERS:
                raise InvalidQuery(f"Requested filter(s) `{key}` are not allowed.")
            filters[key] = tuple(value.split(","))
        elif name.startswith("fields["):
            fields[key] = frozenset(value.split(","))
    page = parameters.get("page", "1")
    return SportMonksQuery(
        includes=_includes(parameters.get("include", ""), kind),
        filters=filters,
        fields=fields,
        sort=tuple(filter(None, parameters.get("sort", "").split(","))),
        page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 10 else 1,
    )


def _includes(text: str, kind: str) -> dict[str, frozenset[str]]:
    includes: dict[str, frozenset[str]] = {}
    for path in filter(None, text.split(",")):
        name, _, nested = path.partition(".")
        if name not in RELATIONS.get(kind, frozenset()):
            raise InvalidQuery(f"Requested include(s) `{path}` are not allowed.")
        if nested and nested not in RELATIONS.get(name, frozenset()) | {
            "team",
            "catchstump",
            "runoutby",
        }:
            raise InvalidQuery(f"Requested include(s) `{path}` are not allowed.")
        includes[name] = includes.get(name, frozenset()) | ({nested} if nested else frozenset())
    return includes


def _matches(item: Mapping[str, Any], name: str, values: tuple[str, ...]) -> bool:
    if name == "starts_between":
        day = str(item.get("starting_at", ""))
        return len(values) == 2 and values[0] <= day and day[: max(len(values[1]), 1)] <= values[1]
    return str(item.get(name)) in values


def _sort_key(value: Any) -> tuple[int, Any]:
    """Sort numbers before texts before None."""
    if value is None:
        return 2, ""
    return (0, value) if isinstance(value, (int, float)) else (1, str(value))
