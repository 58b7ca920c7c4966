"""The repositories of teams, seasons and leagues."""

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
    """All teams are complete and sorted by name."""
    made = [
        factories.team(name=f"Team {number:02}", is_national=number % 2 == 0)
        for number in range(30)
    ]
    await teams.write_batch(reversed(made))
    assert await teams.get(made[3].team_id) == made[3]
    assert await teams.get(factories.number()) is None
    ids = {record.team_id for record in made}
    assert [team for team in await teams.all() if team.team_id in ids] == made


async def test_an_update_of_a_team_creates_none(teams: TeamRepository) -> None:
    """It changes named fields; an unknown team is not created."""
    team = factories.team()
    await teams.write_batch([team])
    changed = replace(team, name="Tigers", color="#ff8800", edited_at=MOMENT)
    assert (
        await teams.update(team.team_id, name="Tigers", color="#ff8800", edited_at=MOMENT)
        == changed
    )
    assert await teams.get(team.team_id) == changed
    unknown = factories.number()
    assert await teams.update(unknown, name="Ghosts") is None
    assert await teams.get(unknown) is None


async def test_a_season_has_its_teams_and_statistics(store: Store) -> None:
    """Teams of other seasons are excluded."""
    seasons = TeamSeasonRepository(store)
    season_id = factories.number()
    team_seasons = sorted(
        (factories.team_season(season_id) for _ in range(30)), key=lambda record: record.team_id
    )
    await seasons.write_batch([*team_seasons, factories.team_season(factories.number())])
    assert await seasons.list_by_season(season_id) == team_seasons
    assert await seasons.list_by_season(factories.number()) == []


async def test_active_leagues_are_filtered(leagues: LeagueRepository) -> None:
    """All leagues are sorted by name; active ones are a subset."""
    on, off = factories.league(name="Ashes"), factories.league(name="Bash", active=False)
    assert await leagues.put(on)
    assert await leagues.put(off)
    mine = {on.league_id, off.league_id}
    assert [league for league in await leagues.all() if league.league_id in mine] == [on, off]
    assert [league for league in await leagues.active() if league.league_id in mine] == [on]


async def test_a_sync_does_not_overwrite_a_concurrent_change(
    leagues: LeagueRepository,
) -> None:
    """A league is replaced only in the version that was read."""
    league = factories.league()
    assert await leagues.put(league)
    switched_off = await leagues.update(league.league_id, active=False)
    assert switched_off == replace(league, active=False, version=2)
    assert not await leagues.put(replace(league, name="Cup 2097", version=2))
    assert await leagues.get(league.league_id) == switched_off
    assert await leagues.put(replace(switched_off, name="Cup 2097", version=3))
    found = await leagues.get(league.league_id)
    assert found is not None
    assert (found.name, found.active) == ("Cup 2097", False)


async def test_one_of_many_concurrent_puts_succeeds(leagues: LeagueRepository) -> None:
    """All have read the same version; only the first write matches it."""
    league = factories.league()
    assert await leagues.put(league)
    writers = [leagues.put(replace(league, name=f"Cup {number}", version=2)) for number in range(8)]
    assert sum(await asyncio.gather(*writers)) == 1


async def test_a_deleted_league_stays_deleted(leagues: LeagueRepository) -> None:
    """A second delete reports that there is none, and an update does not recreate it."""
    league = factories.league()
    assert await leagues.put(league)
    assert await leagues.delete(league.league_id)
    assert not await leagues.delete(league.league_id)
    assert await leagues.update(league.league_id, active=False) is None
    assert await leagues.get(league.league_id) is None
