"""The repositories of a program by backend, with checks of table ownership and pattern names.

    catalogue = Catalogue({"cricket": (Fixtures, Follows), "devices": (Readings,)})
    check_repositories(catalogue)

A repository owns the tables in its `tables`, or else those of its patterns; it may read tables of
other repositories that it lists in `reads`. The composition root creates the catalogue; nothing
registers itself.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

from tally.store.access import access_pattern, access_patterns
from tally.store.errors import AccessViolation
from tally.store.patterns import AccessPattern
from tally.store.schema import Table


@dataclass(frozen=True, slots=True)
class PatternEntry:
    """One pattern and the method that declares it."""

    backend: str
    repository: type
    method: str
    pattern: AccessPattern

    @property
    def qualified_name(self) -> str:
        """The repository class and method: `Follows.get`."""
        return f"{self.repository.__name__}.{self.method}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The repository classes of each backend."""

    backends: Mapping[str, tuple[type, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def entries(self, backend: str | None = None) -> list[PatternEntry]:
        """Return the patterns of all backends or of one, in declaration order."""
        return [
            PatternEntry(name, repository, method, pattern)
            for name, repositories in self.backends.items()
            if backend in {None, name}
            for repository in repositories
            for method, pattern in access_patterns(repository).items()
        ]

    def tables(self) -> list[Table]:
        """Return every owned table, sorted by name."""
        owned = {
            table.name: table
            for repository in self._repositories()
            for table in owned_tables(repository)
        }
        return [owned[name] for name in sorted(owned)]

    def patterns_using_index(self, table: str, index: str) -> list[PatternEntry]:
        """Return the patterns that read an index."""
        return [
            entry
            for entry in self.entries()
            if entry.pattern.table.name == table and index in entry.pattern.indexes
        ]

    def _repositories(self) -> Iterator[type]:
        for repositories in self.backends.values():
            yield from repositories


def owned_tables(repository: type) -> tuple[Table, ...]:
    """Return the tables that a repository owns."""
    declared_tables: tuple[Table, ...] | None = getattr(repository, "tables", None)
    if declared_tables is not None:
        return declared_tables
    read = {table.name for table in readable_tables(repository)}
    named = {
        table.name: table
        for pattern in access_patterns(repository).values()
        for table in (pattern.table, *pattern.tables)
        if table.name not in read
    }
    return tuple(named.values())


def readable_tables(repository: type) -> tuple[Table, ...]:
    """Return the tables of other repositories that a repository may read."""
    declared_tables: tuple[Table, ...] = getattr(repository, "reads", ())
    return (*declared_tables, *jointly_written_tables(repository))


def jointly_written_tables(repository: type) -> tuple[Table, ...]:
    """Return the tables of other repositories that a repository changes in one transaction."""
    declared_tables: tuple[Table, ...] = getattr(repository, "writes", ())
    return declared_tables


def check_repositories(catalogue: Catalogue) -> None:
    """Raise AccessViolation with all problems, if there are any."""
    problems = find_problems(catalogue)
    if problems:
        raise AccessViolation("\n".join(problems))


def find_problems(catalogue: Catalogue) -> list[str]:
    """Return one sentence per problem."""
    problems = _ownership(catalogue)
    for backend, repositories in catalogue.backends.items():
        problems += _duplicate_names(catalogue, backend)
        for repository in repositories:
            problems += _foreign_tables(repository)
            problems += _undeclared_methods(repository)
    return problems


def _ownership(catalogue: Catalogue) -> list[str]:
    problems: list[str] = []
    owners: dict[str, type] = {}
    declared: dict[str, Table] = {}
    repositories = [*chain.from_iterable(catalogue.backends.values())]
    for repository in repositories:
        for table in owned_tables(repository):
            owner = owners.setdefault(table.name, repository)
            if owner is not repository:
                problems.append(
                    f"table {table.name} has two owners: {owner.__name__} and {repository.__name__}"
                )
    for repository in repositories:
        patterns = access_patterns(repository).values()
        used = [table for pattern in patterns for table in (pattern.table, *pattern.tables)]
        problems += [
            f"table {table.name} is declared differently in {repository.__name__}"
            for table in dict.fromkeys(
                (*owned_tables(repository), *readable_tables(repository), *used)
            )
            if declared.setdefault(table.name, table) != table
        ]
        problems += [
            f"{repository.__name__} reads table {table.name}, which no repository owns"
            for table in readable_tables(repository)
            if table.name not in owners
        ]
    return problems


def _duplicate_names(catalogue: Catalogue, backend: str) -> list[str]:
    first: dict[str, PatternEntry] = {}
    problems = []
    for entry in catalogue.entries(backend):
        other = first.setdefault(entry.pattern.name, entry)
        if other is not entry:
            problems.append(
                f"{backend}: {other.qualified_name} and {entry.qualified_name} share the name"
                f" {entry.pattern.name!r}"
            )
    return problems


def _foreign_tables(repository: type) -> list[str]:
    owned = {table.name for table in owned_tables(repository)}
    read = {table.name for table in readable_tables(repository)}
    joint = {table.name for table in jointly_written_tables(repository)}
    problems = []
    for method, pattern in access_patterns(repository).items():
        qualified_name = f"{repository.__name__}.{method}"
        for name in sorted(pattern.table_names - owned):
            if name not in read:
                problems.append(
                    f"{qualified_name} uses table {name}, which {repository.__name__} does not own"
                )
            elif name in _written_tables(pattern) - joint:
                problems.append(
                    f"{qualified_name} writes to table {name}, which {repository.__name__} may"
                    " only read"
                )
    return problems


def _written_tables(pattern: AccessPattern) -> set[str]:
    """Return the tables that a pattern may change; a condition check changes none."""
    if pattern.reads_only:
        return set()
    parts = [part for use in pattern.operation.uses for part in use.parts]
    checked = {
        part.table.name
        for part in parts
        if part.table is not None and part.name == "ConditionCheck"
    }
    changed = {
        part.table.name
        for part in parts
        if part.table is not None and part.name != "ConditionCheck"
    }
    return set(pattern.table_names) - (checked - changed)


def _undeclared_methods(repository: type) -> list[str]:
    methods = inspect.getmembers_static(repository, inspect.isfunction)
    return [
        f"{repository.__name__}.{name} is public but not an access pattern: add @access or a"
        " leading underscore"
        for name, method in methods
        if not name.startswith("_") and access_pattern(method) is None
    ]
