"""The documentation matches the project: dependencies, commands and links."""

import itertools
import re
import tomllib
from pathlib import Path

import pytest

from tests.helper_modules import render
from tests.project_files import tracked_files
from tests.request_paths import END, START, layer_of, phrase

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "tests/*.md")
    for page in ROOT.glob(pattern)
)

# Split, so that this file does not contain what it searches for.
REGISTRIES = "|".join(("py" + "pi", "python" + "hosted", "npm" + "js", "deb" + "ian", "crates"))
MACHINE_PATHS = "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me", "t" + "mp", "Us" + "ers"))
FORBIDDEN = re.compile(rf"\b({REGISTRIES})\.(org|com|io)\b|(?<![\w.$}}~*-])/({MACHINE_PATHS})/\w")


def read(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):.*##", read("Makefile"), re.MULTILINE))


def declared_dependencies() -> set[str]:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    requirements = [
        *project["dependencies"],
        *itertools.chain.from_iterable(project["optional-dependencies"].values()),
    ]
    names = {re.split(r"[^a-z0-9-]", requirement, maxsplit=1)[0] for requirement in requirements}
    return names - {project["name"]}


def test_the_dependencies_page_lists_exactly_the_dependencies() -> None:
    """Each dependency of pyproject.toml has one row in docs/dependencies.md."""
    explained = re.findall(r"^\| `([a-z0-9-]+)` \|", read("docs/dependencies.md"), re.MULTILINE)
    assert len(explained) == len(set(explained))
    assert set(explained) == declared_dependencies()


def test_the_lock_pins_every_dependency_with_hashes() -> None:
    """requirements.lock pins every dependency and has a hash for every pin."""
    pins = re.split(r"^(?=[a-z0-9])", read("requirements.lock"), flags=re.MULTILINE)[1:]
    assert declared_dependencies() <= {re.split(r"[=\[]", pin, maxsplit=1)[0] for pin in pins}
    assert [
        pin.splitlines()[0] for pin in pins if "==" not in pin or "--hash=sha256:" not in pin
    ] == []


@pytest.mark.parametrize("lock", ["requirements.lock", "deploy/requirements.lock"])
def test_the_lock_contains_no_urls(lock: str) -> None:
    """Packages come from the index that the user configured."""
    urls = r"https?:|--(?:extra-)?index|--find-links|file:| @ |(?:via|-r) .*/"
    assert re.findall(urls, read(lock)) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_documented_make_command_exists(page: Path) -> None:
    """Pages refer only to existing make targets."""
    commands = re.findall(
        r"^make ([a-z]+)|`make (?:[A-Z]+=\S+ )?([a-z]+)", read(page), re.MULTILINE
    )
    assert {bare or quoted for bare, quoted in commands} <= make_targets()


def test_every_make_command_is_documented() -> None:
    """CONTRIBUTING.md lists all of them, and the README the two that a newcomer needs."""
    assert (
        set(re.findall(r"^\| `make ([a-z]+)`", read("CONTRIBUTING.md"), re.MULTILINE))
        == make_targets()
    )
    assert {"up", "test"} <= set(re.findall(r"^make ([a-z]+)", read("README.md"), re.MULTILINE))


def test_helper_modules_of_the_tests_are_listed() -> None:
    """To update the list, run `python -m tests.helper_modules`."""
    assert read("tests/README.md") == render()


def test_the_modules_on_request_paths_are_described_as_they_are() -> None:
    """To update the lists, run `python -m tests.request_paths`."""
    generated = read("docs/architecture.md").partition(START)[2].partition(END)[0]
    modules = re.findall(r"^    - `(.+?)`: (.+)$", generated, re.MULTILINE)
    assert modules
    for module, description in modules:
        assert layer_of(module)
        assert description == phrase(module)


@pytest.mark.parametrize("name", [".ci/run", ".github/workflows/ci.yml", ".pre-commit-config.yaml"])
def test_automation_runs_existing_make_commands(name: str) -> None:
    commands = re.findall(r"^(?:\s*(?:- run|entry): )?make ([a-z]+)$", read(name), re.MULTILINE)
    assert {"check", "test"} <= set(commands) <= make_targets()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_relative_link_resolves(page: Path) -> None:
    """A relative link names an existing file."""
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", read(page))
    assert [link for link in links if not (ROOT / page.parent / link).exists()] == []


def test_every_page_is_reachable_from_the_readme() -> None:
    """Following links from the README reaches every page."""
    found, queue = {Path("README.md")}, [Path("README.md")]
    while queue:
        page = queue.pop()
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+\.md)", read(page)):
            target = (ROOT / page.parent / link).resolve().relative_to(ROOT.resolve())
            if target not in found:
                found.add(target)
                queue.append(target)
    assert set(PAGES) == found


def test_no_file_contains_a_registry_host_or_a_local_path() -> None:
    """The project works in any directory and with any package index."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in tracked_files()
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
        )
        if FORBIDDEN.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line", ["index at " + "py" + "pi.org", "cd /" + "wo" + "rk/main", "open('/" + "t" + "mp/x')"]
)
def test_the_pattern_matches_registry_hosts_and_local_paths(line: str) -> None:
    """The previous test would detect them."""
    assert FORBIDDEN.search(line)
