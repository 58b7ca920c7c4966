"""The state of the SportMonks simulator: playbacks, scheduled matches and the rate limit."""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final

from tally.kit.clock import Clock
from tally.sim.fault_injection import FaultInjector
from tally.sim.sportmonks.match import Match, derived_id
from tally.sim.sportmonks.playback import MatchPlayback, format_timestamp
from tally.sim.sportmonks.resources import (
    render_league,
    render_season,
    render_stage,
    render_team,
    render_venue,
)

HOUR_SECONDS: Final = 3600
DEFAULT_HOURLY_LIMIT: Final = 2000


class HourlyRateLimit:
    """Counts requests per resource in windows of an hour from the first request."""

    def __init__(self, clock: Clock, hourly: int = DEFAULT_HOURLY_LIMIT) -> None:
        self._clock = clock
        self.hourly = hourly
        self._counts: dict[str, tuple[float, int]] = {}

    def count(self, resource: str) -> int:
        """Count a request; returns the seconds to wait if it exceeds the limit, else 0."""
        now = self._clock.monotonic()
        since, count = self._counts.get(resource, (now, 0))
        if now - since >= HOUR_SECONDS:
            since, count = now, 0
        self._counts[resource] = since, count + 1
        return 0 if count < self.hourly else max(1, math.ceil(since + HOUR_SECONDS - now))

    def reset(self) -> None:
        """Reset all counts."""
        self._counts.clear()

    def headers(self, resource: str) -> dict[str, str]:
        _, count = self._counts.get(resource, (0.0, 0))
        return {
            "X-RateLimit-Limit": str(self.hourly),
            "X-RateLimit-Remaining": str(max(0, self.hourly - count)),
        }


# Not a secret: valid only in this simulator.
API_TOKEN: Final = "made-up-sportmonks-token-of-some-length"  # noqa: S105
PER_PAGE: Final = 100
TEAM_GROUP_SIZE: Final = 10
# Invented: the teams at home, then those that visit them.
TEAM_NAMES: Final = (
    *("Pier Pelicans", "Orchard Otters", "Granite Goats", "Valley Voles", "Canal Kestrels"),
    *("Moor Martens", "Quarry Quails", "Estuary Egrets", "Bridge Badgers", "Summit Stoats"),
    *("Forest Foxes", "Copper Cranes", "Island Ibises", "Lakeside Larks", "Tundra Terns"),
    *("Windmill Wrens", "River Ravens", "Coast Cormorants", "Prairie Plovers", "Dune Dotterels"),
)


class UnknownMatch(Exception):
    """There is no playback with this match id."""


class SportMonksCore:
    """Playbacks and scheduled fixtures, without HTTP."""

    def __init__(
        self, clock: Clock, *, api_token: str = API_TOKEN, limits: HourlyRateLimit | None = None
    ) -> None:
        self.clock = clock
        self.api_token = api_token
        self.limits = limits or HourlyRateLimit(clock)
        self.faults = FaultInjector()
        self.playbacks: dict[int, MatchPlayback] = {}
        self.scheduled: dict[int, dict[str, Any]] = {}
        self.per_page = PER_PAGE
        self.url = ""

    def add(self, match: Match, **options: Any) -> MatchPlayback:
        """Add a match; `options` are those of MatchPlayback."""
        playback = MatchPlayback(match, self.clock, **options)
        self.playbacks[match.id] = playback
        return playback

    def playback(self, match_id: int) -> MatchPlayback:
        found = self.playbacks.get(match_id)
        if found is None:
            raise UnknownMatch(f"Unknown match {match_id}")
        return found

    def remove(self, match_id: int) -> None:
        self.playback(match_id)
        del self.playbacks[match_id]

    def schedule(
        self,
        count: int,
        *,
        league_name: str = "Demo League",
        first: datetime | None = None,
        apart: float = 3600,
        status: str = "NS",
    ) -> list[int]:
        """Schedule fixtures without a playback, `apart` seconds apart; returns their ids."""
        first = first or self.clock.now() + timedelta(days=1)
        ids = []
        for number in range(count):
            starts_at = first + timedelta(seconds=apart * number)
            fixture = _scheduled_fixture(league_name, number, starts_at, status)
            self.scheduled[fixture["id"]] = fixture
            ids.append(fixture["id"])
        return ids

    def livescores(self) -> list[Any]:
        """The fixtures of a poll: every listed match, garbled if configured."""
        candidates = [
            playback
            for playback in self.playbacks.values()
            if playback.is_listed or playback.per_poll
        ]
        polled = [(playback, playback.poll()) for playback in candidates]
        return [
            garble_fixture(fixture, playback.garble)
            for playback, fixture in polled
            if playback.is_listed
        ]

    def fixtures(self) -> list[dict[str, Any]]:
        playing = (playback.fixture() for playback in self.playbacks.values())
        return sorted(
            chain(playing, self.scheduled.values()), key=lambda fixture: int(fixture["id"])
        )

    def fixture(self, match_id: int) -> dict[str, Any] | None:
        playback = self.playbacks.get(match_id)
        return playback.fixture() if playback else self.scheduled.get(match_id)

    def leagues(self) -> list[dict[str, Any]]:
        return self._related("league")

    def teams(self) -> list[dict[str, Any]]:
        return self._related("localteam", "visitorteam")

    def seasons(self) -> list[dict[str, Any]]:
        teams: dict[int, dict[int, dict[str, Any]]] = {}
        for fixture in self._all_fixtures():
            sides = teams.setdefault(fixture["season_id"], {})
            for side in ("localteam", "visitorteam"):
                sides[fixture[side]["id"]] = fixture[side]
        return [
            season | {"teams": list(teams[season["id"]].values())}
            for season in self._related("season")
        ]

    def squad(self, team_id: int, season_id: int) -> list[dict[str, Any]]:
        """The players of a team in a season."""
        found: dict[int, dict[str, Any]] = {}
        for fixture in self._all_fixtures():
            if fixture["season_id"] == season_id:
                for player in fixture["lineup"]:
                    if player["lineup"]["team_id"] == team_id:
                        found[player["id"]] = {
                            name: value for name, value in player.items() if name != "lineup"
                        }
        return list(found.values())

    def _related(self, *names: str) -> list[dict[str, Any]]:
        found = {
            fixture[name]["id"]: fixture[name] for fixture in self._all_fixtures() for name in names
        }
        return sorted(found.values(), key=lambda item: int(item["id"]))

    def _all_fixtures(self) -> Iterator[dict[str, Any]]:
        return chain(
            (playback.fixture() for playback in self.playbacks.values()), self.scheduled.values()
        )


def garble_fixture(fixture: dict[str, Any], how: str | None) -> Any:
    """Make a fixture invalid."""
    if how == "not_an_object":
        return "fixture"
    changes: dict[str, dict[str, Any]] = {
        "no_id": {"id": None},
        "no_teams": {"localteam_id": None, "visitorteam_id": None},
        "text_for_numbers": {"id": "first", "league_id": "premier", "starting_at": 7},
        "text_for_a_list": {"runs": "many"},
        "bad_ball": {"balls": [{"id": "x", "ball": None}]},
    }
    return fixture | changes.get(how or "", {})


def _scheduled_fixture(
    league_name: str, number: int, starts_at: datetime, status: str
) -> dict[str, Any]:
    league_id, season_id = (
        derived_id(f"league {league_name}"),
        derived_id(f"season {league_name} {starts_at.year}"),
    )
    size = TEAM_GROUP_SIZE
    home = TEAM_NAMES[number % size]
    away = TEAM_NAMES[(number // size + number + 1) % size + size]
    # A team of the same name in another league is another team.
    home_id, away_id = (derived_id(f"team {league_name} {name}") for name in (home, away))
    stage_id, venue_id = derived_id(f"stage {season_id}"), derived_id(f"venue {home}")
    empty: dict[str, list[Any]] = {
        name: [] for name in ("runs", "scoreboards", "batting", "bowling", "balls", "lineup")
    }
    unknown = dict.fromkeys(
        (
            "toss_won_team_id",
            "winner_team_id",
            "draw_noresult",
            "man_of_match_id",
            "elected",
            "rpc_overs",
            "rpc_target",
            "last_period",
        )
    )
    return {
        "resource": "fixtures",
        "id": 5_000_000 + derived_id(f"schedule {league_name}") % 1000 * 1_000_000 + number,
        "league_id": league_id,
        "season_id": season_id,
        "stage_id": stage_id,
        "round": f"Match {number + 1}",
        "localteam_id": home_id,
        "visitorteam_id": away_id,
        "starting_at": format_timestamp(starts_at),
        "type": "T20",
        "live": True,
        "status": status,
        "note": "",
        "venue_id": venue_id,
        "total_overs_played": 20,
        "super_over": False,
        "follow_on": False,
        "weather_report": [],
        **unknown,
        **empty,
        "localteam": render_team(home_id, home, "T20"),
        "visitorteam": render_team(away_id, away, "T20"),
        "league": render_league(league_id, league_name, season_id),
        "season": render_season(season_id, league_id, str(starts_at.year)),
        "stage": render_stage(stage_id, league_id, season_id, "T20"),
        "venue": render_venue(venue_id, f"{home} Ground"),
        **dict.fromkeys(("tosswon", "winnerteam", "manofmatch")),
    }
