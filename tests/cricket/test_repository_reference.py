"""Sides, seasons and leagues: written by syncs, changed by administrators, and neither undoes the other."""

import asyncio
from dataclasses import replace

import pytest

from tally.cricket.repository.leagues import LeagueRepository
from tally.cricket.repository.team_seasons import TeamSeasonRepository
from tally.cricket.repository.teams import TeamRepository
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.factories import MOMENT


@pytest.fixture
def teams(store: Store) -> TeamRepository:
    return TeamRepository(store)


@pytest.fixture
def leagues(store: Store) -> LeagueRepository:
    return LeagueRepository(store)


async def test_teams_are_written_in_batches_and_read_by_name(teams: TeamRepository) -> None:
    """All of them, whole, in the order of their names."""
    made = [
        factories.team(name=f"Team {number:02}", is_national=number % 2 == 0)
        for number in range(30)
    ]
    await teams.write_batch(reversed(made))
    assert await teams.get(made[3].team_id) == made[3]
    assert await teams.get(factories.number()) is None
    ids = {each.team_id for each in made}
    assert [each for each in await teams.all() if each.team_id in ids] == made


async def test_a_change_to_a_team_makes_none(teams: TeamRepository) -> None:
    """It changes what it names, and an unknown team stays unknown."""
    made = factories.team()
    await teams.write_batch([made])
    changed = replace(made, name="Tigers", color="#ff8800", edited_at=MOMENT)
    assert (
        await teams.update(made.team_id, name="Tigers", color="#ff8800", edited_at=MOMENT)
        == changed
    )
    assert await teams.get(made.team_id) == changed
    unknown = factories.number()
    assert await teams.update(unknown, name="Ghosts") is None
    assert await teams.get(unknown) is None


async def test_a_season_has_its_teams_and_their_figures(store: Store) -> None:
    """And none of another season's."""
    seasons = TeamSeasonRepository(store)
    season_id = factories.number()
    made = sorted(
        (factories.team_season(season_id) for _ in range(30)), key=lambda each: each.team_id
    )
    await seasons.write_batch([*made, factories.team_season(factories.number())])
    assert await seasons.of_season(season_id) == made
    assert await seasons.of_season(factories.number()) == []


async def test_active_leagues_are_those_that_nobody_switched_off(leagues: LeagueRepository) -> None:
    """All leagues are listed by name; the active ones are a part of them."""
    on, off = factories.league(name="Ashes"), factories.league(name="Bash", active=False)
    assert await leagues.put(on)
    assert await leagues.put(off)
    mine = {on.league_id, off.league_id}
    assert [each for each in await leagues.all() if each.league_id in mine] == [on, off]
    assert [each for each in await leagues.active() if each.league_id in mine] == [on]


async def test_a_sync_does_not_undo_what_an_administrator_did_meanwhile(
    leagues: LeagueRepository,
) -> None:
    """A league is replaced only as it was read: whoever read too early reads again."""
    made = factories.league()
    assert await leagues.put(made)
    switched_off = await leagues.update(made.league_id, active=False)
    assert switched_off == replace(made, active=False, version=2)
    assert not await leagues.put(replace(made, name="Cup 2097", version=2))
    assert await leagues.get(made.league_id) == switched_off
    assert await leagues.put(replace(switched_off, name="Cup 2097", version=3))
    found = await leagues.get(made.league_id)
    assert found is not None
    assert (found.name, found.active) == ("Cup 2097", False)


async def test_of_many_who_replace_one_league_at_once_one_does(leagues: LeagueRepository) -> None:
    """Each has read the same version, and only the first is up to date."""
    made = factories.league()
    assert await leagues.put(made)
    writers = [leagues.put(replace(made, name=f"Cup {number}", version=2)) for number in range(8)]
    assert sum(await asyncio.gather(*writers)) == 1


async def test_a_deleted_league_is_gone_and_stays_away(leagues: LeagueRepository) -> None:
    """Deleting it again says that there was none, and no change brings it back."""
    made = factories.league()
    assert await leagues.put(made)
    assert await leagues.delete(made.league_id)
    assert not await leagues.delete(made.league_id)
    assert await leagues.update(made.league_id, active=False) is None
    assert await leagues.get(made.league_id) is None
