"""docs/capacity.md shows the stored results of the benchmarks and nothing else."""

from bench import capacity_page
from bench.capacity_page import Machine, Results
from bench.rounds import Line


def test_the_page_is_current() -> None:
    """Run `python -m bench.capacity_page` to update it."""
    assert capacity_page.PAGE.read_text("utf-8") == capacity_page.render()


def test_every_run_is_shown_with_its_conditions() -> None:
    line = Line("Store", "put an item", 30.5, "raw SQLite", 20.25, 1.51, "at most 2", True)
    machine = Machine("3.11.7", "3.50.0", "Linux", "a processor", 2, 0.5)
    section = capacity_page._run(Results(machine, "2026-01-31", "--only raw", 61.2, [line]))
    assert "## Store" in section
    assert '2026-01-31 with `make bench ARGS="--only raw"` in 61 s' in section
    assert "2 CPUs (a processor), load average 0.5 at the start" in section
    assert "| put an item | 30.5 | raw SQLite | 20.2 | 1.51 | at most 2 | yes |" in section
