"""What a request asks for besides its path: `include`, `filter[…]`, `fields[…]`, `sort` and `page`, as SportMonks reads them."""

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
# What comes with a relation whether it is asked for or not.
ALWAYS: Final[Mapping[str, frozenset[str]]] = {"balls": frozenset({"batsman", "bowler", "score"})}
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
    """Something that SportMonks does not offer was asked for."""


class SportMonksQuery(msgspec.Struct, frozen=True):
    """A request's parameters, checked."""

    includes: Mapping[str, frozenset[str]] = {}
    filters: Mapping[str, tuple[str, ...]] = {}
    fields: Mapping[str, frozenset[str]] = {}
    sort: tuple[str, ...] = ()
    page: int = 1

    def selected(self, items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those that pass the filters, in the order that was asked for."""
        found = [
            item
            for item in items
            if all(_passes(item, name, values) for name, values in self.filters.items())
        ]
        for field in reversed(self.sort):
            name = field.removeprefix("-")
            found.sort(key=lambda item: _sort_key(item.get(name)), reverse=field.startswith("-"))
        return found

    def shown(self, item: Any, kind: str) -> Any:
        """An item with the relations and the fields that were asked for, and no others."""
        if not isinstance(item, dict):
            return item
        hidden = RELATIONS.get(kind, frozenset()) - self.includes.keys()
        kept = self.fields.get(item.get("resource", kind))
        shown = {}
        for name, value in item.items():
            if name in hidden or (
                kept is not None
                and name not in kept
                and name not in self.includes
                and name != "resource"
            ):
                continue
            shown[name] = self._related(name, value) if name in self.includes else value
        return shown

    def _related(self, name: str, value: Any) -> Any:
        wanted = self.includes[name] | ALWAYS.get(name, frozenset())
        hidden = RELATIONS.get(name, frozenset()) - wanted

        def trimmed(row: Any) -> Any:
            if not isinstance(row, dict):
                return row
            kept = self.fields.get(row.get("resource", name))
            return {
                key: inner
                for key, inner in row.items()
                if key not in hidden
                and (kept is None or key in kept or key in wanted or key == "resource")
            }

        return [trimmed(row) for row in value] if isinstance(value, list) else trimmed(value)


def parse_query(parameters: Mapping[str, str], kind: str) -> SportMonksQuery:
    """The query of a request for `kind`, or InvalidQuery."""
    filters, fields = {}, {}
    for name, value in parameters.items():
        inside = name.partition("[")[2].removesuffix("]")
        if name.startswith("filter["):
            if inside not in FILTERS:
                raise InvalidQuery(f"Requested filter(s) `{inside}` are not allowed.")
            filters[inside] = tuple(value.split(","))
        elif name.startswith("fields["):
            fields[inside] = frozenset(value.split(","))
    page = parameters.get("page", "1")
    return SportMonksQuery(
        includes=_includes(parameters.get("include", ""), kind),
        filters=filters,
        fields=fields,
        sort=tuple(filter(None, parameters.get("sort", "").split(","))),
        page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 10 else 1,
    )


def _includes(text: str, kind: str) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
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
        found[name] = found.get(name, frozenset()) | ({nested} if nested else frozenset())
    return found


def _passes(item: Mapping[str, Any], name: str, values: tuple[str, ...]) -> bool:
    if name == "starts_between":
        day = str(item.get("starting_at", ""))
        return len(values) == 2 and values[0] <= day and day[: max(len(values[1]), 1)] <= values[1]
    return str(item.get(name)) in values


def _sort_key(value: Any) -> tuple[int, Any]:
    """Numbers before text before nothing, so that anything can be sorted."""
    if value is None:
        return 2, ""
    return (0, value) if isinstance(value, (int, float)) else (1, str(value))
