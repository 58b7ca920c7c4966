"""Renders the resources of fixtures: teams, leagues, seasons, stages, venues and players."""

import re
from functools import lru_cache
from typing import Any, Final

UPDATED: Final = "2026-01-01T00:00:00.000000Z"
IMAGES: Final = "https://images.example.test/cricket"


def abbreviation(name: str) -> str:
    """The initials of several words, or the first letters of one."""
    words = re.findall(r"\w+", name)
    initials = "".join(word[0] for word in words)
    return (initials if len(words) > 1 else name[:3]).upper()[:4]


@lru_cache(4096)
def render_team(team_id: int, name: str, kind: str) -> dict[str, Any]:
    return {
        "resource": "teams",
        "id": team_id,
        "name": name,
        "code": abbreviation(name),
        "image_path": f"{IMAGES}/teams/{team_id}.png",
        "country_id": 1,
        "national_team": kind in {"T20I", "ODI", "Test"},
        "updated_at": UPDATED,
    }


@lru_cache(4096)
def render_league(league_id: int, name: str, season_id: int) -> dict[str, Any]:
    return {
        "resource": "leagues",
        "id": league_id,
        "season_id": season_id,
        "country_id": 1,
        "name": name,
        "code": abbreviation(name),
        "image_path": f"{IMAGES}/leagues/{league_id}.png",
        "type": "league",
        "updated_at": UPDATED,
    }


@lru_cache(4096)
def render_season(season_id: int, league_id: int, name: str) -> dict[str, Any]:
    return {
        "resource": "seasons",
        "id": season_id,
        "league_id": league_id,
        "name": name,
        "code": name.replace("/", "-"),
        "updated_at": UPDATED,
    }


@lru_cache(4096)
def render_stage(stage_id: int, league_id: int, season_id: int, kind: str) -> dict[str, Any]:
    return {
        "resource": "stages",
        "id": stage_id,
        "league_id": league_id,
        "season_id": season_id,
        "name": "Regular",
        "code": "regular",
        "type": kind,
        "standings": False,
        "updated_at": UPDATED,
    }


@lru_cache(4096)
def render_venue(venue_id: int, name: str) -> dict[str, Any]:
    return {
        "resource": "venues",
        "id": venue_id,
        "country_id": 1,
        "name": name,
        "city": "",
        "image_path": f"{IMAGES}/venues/{venue_id}.png",
        "capacity": None,
        "floodlight": True,
        "updated_at": UPDATED,
    }


@lru_cache(65_536)
def render_player(player_id: int, name: str) -> dict[str, Any]:
    first, _, last = name.rpartition(" ")
    return {
        "resource": "players",
        "id": player_id,
        "country_id": 1,
        "firstname": first or name,
        "lastname": last if first else "",
        "fullname": name,
        "image_path": f"{IMAGES}/players/{player_id}.png",
        "dateofbirth": None,
        "gender": "m",
        "battingstyle": None,
        "bowlingstyle": None,
        "position": None,
        "updated_at": UPDATED,
    }
