"""Routes are looked up in a table, with the results of Starlette's router, which tries them all."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.routing import Match, Route

from tally.kit.route_table import Handler, RouteTable

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_LITERALS = st.sampled_from(["a", "b", "live", "", "a.csv", "a b", "é", "{", "A"])


def _handler(_: object) -> Response:
    return Response()


def _shape(template: str) -> tuple[str, ...]:
    return tuple("{}" if part.startswith("{") else part for part in template.split("/"))


@st.composite
def _templates(draw: st.DrawFn) -> list[str]:
    literals = _LITERALS.filter(lambda text: "{" not in text)
    templates = []
    for _ in range(draw(st.integers(1, 8))):
        parts = draw(st.lists(st.one_of(literals, st.just("{}")), min_size=1, max_size=4))
        templates.append(
            "".join(f"/{{p{at}}}" if part == "{}" else f"/{part}" for at, part in enumerate(parts))
        )
    return list({_shape(template): template for template in reversed(templates)}.values())[::-1]


_paths = st.lists(_LITERALS, max_size=5).map(lambda parts: "/" + "/".join(parts))


def _judge(templates: Sequence[str], path: str) -> tuple[str | None, dict[str, str]]:
    """Return what Starlette matches first."""
    scope = {"type": "http", "method": "GET", "path": path}
    for template in templates:
        match, child_scope = Route(template, _handler).matches(scope)
        if match is not Match.NONE:
            return template, child_scope["path_params"]
    return None, {}


@given(_templates(), _paths)
def test_the_table_finds_what_starlette_finds(templates: list[str], path: str) -> None:
    table = RouteTable([("GET", template, _handler_of(template)) for template in templates])
    found, parameters = table.find(path)
    assert (found and found.template, parameters) == _judge(templates, path)


def _handler_of(_: str) -> Handler:
    async def handle(_: object) -> Response:
        return Response()

    return handle


@given(st.sets(st.sampled_from(_METHODS), min_size=1))
def test_a_path_has_its_declared_methods_and_head_with_get(methods: set[str]) -> None:
    table = RouteTable([(method, "/a/{id}", _handler_of(method)) for method in sorted(methods)])
    found, _ = table.find("/a/1")
    assert found is not None
    assert found.handlers.keys() == methods | ({"HEAD"} if "GET" in methods else set())


def test_a_trailing_newline_is_part_of_the_path() -> None:
    """In Starlette's pattern, `$` also matches before it."""
    table = RouteTable([("GET", "/a", _handler_of("")), ("GET", "/{id}", _handler_of(""))])
    found, parameters = table.find("/a\n")
    assert found is not None
    assert (found.template, parameters) == ("/{id}", {"id": "a\n"})


@pytest.mark.parametrize("path", ["", "*", "a", "//", "/a//", "a/b"])
def test_an_unusual_path_is_not_found(path: str) -> None:
    table = RouteTable([("GET", "/a", _handler_of("")), ("GET", "/a/{id}", _handler_of(""))])
    assert table.find(path) == (None, {})


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ("/a/{id}", "GET /a/{id} is declared twice"),
        ("/a/{name}", "differs only in parameter names"),
        ("/a/{id}.csv", "a parameter must be a whole segment"),
    ],
)
def test_an_ambiguous_template_is_rejected(second: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("{", r"\{")):
        RouteTable([("GET", "/a/{id}", _handler_of("")), ("GET", second, _handler_of(""))])
