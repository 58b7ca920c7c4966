"""Looks up the endpoint of a path in a dictionary instead of trying one pattern after another.

    table = RouteTable([("GET", "/matches/live", list_live), ("GET", "/matches/{id}", get)])
    methods, parameters = table.find("/matches/7")

A parameter is a whole segment of the path. If several templates match, the first one wins.
"""

import re
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from starlette.requests import Request
from starlette.types import ASGIApp

Handler: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]

_parameter = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class PathMethods:
    """The handlers of one path by method; HEAD is served by the handler of GET."""

    template: str
    position: int
    parameters: tuple[tuple[int, str], ...]
    handlers: dict[str, Handler] = field(default_factory=dict)


# Reads the literal segments of a path, and the methods by these segments.
_Group: TypeAlias = tuple[Callable[[list[str]], Hashable], dict[Hashable, PathMethods]]


class RouteTable:
    """The paths of an app, grouped by the positions of their literal segments."""

    def __init__(self, routes: Iterable[tuple[str, str, Handler]]) -> None:
        # By number of segments and positions of the literals, then by the literals.
        self._groups: dict[int, dict[tuple[int, ...], _Group]] = {}
        self._static: dict[str, PathMethods] = {}
        paths: dict[str, PathMethods] = {}
        for method, template, handler in routes:
            if template not in paths:
                paths[template] = self._add(template, len(paths))
            handlers = paths[template].handlers
            if method in handlers:
                raise ValueError(f"{method} {template} is declared twice")
            handlers[method] = handler
        for template, methods in paths.items():
            if "GET" in methods.handlers:
                methods.handlers.setdefault("HEAD", methods.handlers["GET"])
            if not methods.parameters and self.find(template)[0] is methods:
                self._static[template] = methods

    def find(self, path: str) -> tuple[PathMethods | None, dict[str, str]]:
        """Return the methods of the path and its parameters; (None, {}) if no template matches."""
        found = self._static.get(path)
        if found is not None:
            return found, {}
        segments = path.split("/")
        for literals, by_literals in self._groups.get(len(segments), {}).values():
            methods = by_literals.get(literals(segments))
            if methods is None or (found is not None and found.position < methods.position):
                continue
            if all([segments[at] for at, _ in methods.parameters]):  # noqa: C419  (faster)
                found = methods
        if found is None:
            return None, {}
        return found, {name: segments[at] for at, name in found.parameters}

    def _add(self, template: str, position: int) -> PathMethods:
        literals, parameters = [], []
        for at, segment in enumerate(segments := template.split("/")):
            if match := _parameter.fullmatch(segment):
                parameters.append((at, match[1]))
            elif "{" in segment:
                raise ValueError(f"{template}: a parameter must be a whole segment")
            else:
                literals.append(at)
        methods = PathMethods(template, position, tuple(parameters))
        groups = self._groups.setdefault(len(segments), {})
        read, by_literals = groups.setdefault(tuple(literals), (itemgetter(*literals), {}))
        if by_literals.setdefault(read(segments), methods) is not methods:
            raise ValueError(f"{template}: another template differs only in parameter names")
        return methods
