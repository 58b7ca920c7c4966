"""Follows of teams: a follower of a team follows its fixtures as they are scheduled.

Following a team adds its scheduled fixtures to the user's follows at once. A job adds fixtures that
are scheduled later to all followers of their teams, page by page and with a limit per run; a sync
marks such fixtures as pending. Every follow is added under two conditions, in one transaction: the
user still follows the team, and has neither followed nor declined the match. So instances, users
and the job can work at the same time, and a repetition changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.cricket.model.errors import team_not_found, too_many_teams
from tally.cricket.model.records import (
    EndReason,
    Fixture,
    Follow,
    TeamFollow,
    follow_expiry,
    format_start_time,
)
from tally.cricket.repository.follows import MAX_ADDED
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.kit import logs
from tally.kit.clock import Clock

MAX_TEAMS_PER_USER: Final = 50
MAX_FIXTURES_PER_RUN: Final = 500
MAX_FOLLOWS_PER_RUN: Final = 10_000
# A Test that started five days ago may be live; a fixture is synced 30 days ahead.
_PAST: Final = timedelta(days=6)
_FUTURE: Final = timedelta(days=32)
_PAGE: Final = 500

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class TeamFollowService:
    """Follows and unfollows teams, and adds new fixtures to the follows of their followers."""

    repositories: Repositories
    activities: ActivityService
    clock: Clock

    async def list_by_user(self, user_id: str) -> list[TeamFollow]:
        return await self.repositories.follows.list_teams(user_id)

    async def follow(self, team_id: str, user_id: str) -> TeamFollow:
        """Follow a team and its scheduled fixtures; start Live Activities of live ones."""
        if await self.repositories.teams.get(team_id) is None:
            raise team_not_found()
        followed = {follow.team_id for follow in await self.list_by_user(user_id)}
        if team_id not in followed and len(followed) >= MAX_TEAMS_PER_USER:
            raise too_many_teams(MAX_TEAMS_PER_USER)
        team_follow = await self.repositories.follows.follow_team(
            TeamFollow(team_id=team_id, user_id=user_id, created_at=self.clock.milliseconds())
        )
        for fixture in await self._scheduled_fixtures(team_id):
            added = await self._add(fixture, team_id, [user_id])
            if added and fixture.is_live:
                await self.activities.on_followed(fixture, added[0])
        return team_follow

    async def unfollow(self, team_id: str, user_id: str) -> None:
        """Unfollow a team and the matches that are followed only because of it; idempotent."""
        await self.repositories.follows.unfollow_team(team_id, user_id)
        teams = {follow.team_id for follow in await self.list_by_user(user_id)} - {team_id}
        follows = await self._follows_via(team_id, user_id)
        fixtures = await self.repositories.fixtures.get_many(follow.match_id for follow in follows)
        for follow in follows:
            fixture = fixtures.get(follow.match_id)
            others = teams.intersection(() if fixture is None else fixture.team_ids)
            if others:
                await self.repositories.follows.assign_to_team(follow, min(others))
            elif await self.repositories.follows.remove_for_team(follow):
                await self.activities.on_unfollowed(
                    follow.match_id, user_id, EndReason.USER_UNFOLLOW
                )

    async def add_new_fixtures(self) -> int:
        """Add pending fixtures to the follows of their teams' followers; return how many.

        Stops after `MAX_FOLLOWS_PER_RUN` follows; the next run continues from there.
        """
        budget = MAX_FOLLOWS_PER_RUN
        for fixture in await self.repositories.fixtures.pending(MAX_FIXTURES_PER_RUN):
            budget = await self._add_to_followers(fixture, budget)
            if budget <= 0:
                break
        added = MAX_FOLLOWS_PER_RUN - budget
        if added:
            _log.info(
                "Fixtures were followed for teams", action="team_fixtures_followed", count=added
            )
        return added

    async def _add_to_followers(self, fixture: Fixture, budget: int) -> int:
        """Add a fixture to the follows of its teams' followers; return the remaining budget."""
        first, _, after = (fixture.followers_cursor or "").partition("#")
        teams = fixture.team_ids if not fixture.status.is_over else ()
        for team_id in teams[teams.index(first) :] if first in teams else teams:
            last = after if team_id == first else ""
            while page := await self.repositories.follows.list_team_followers(
                team_id, last, MAX_ADDED
            ):
                await self._add(fixture, team_id, page)
                last, budget = page[-1], budget - len(page)
                if budget <= 0:
                    await self.repositories.fixtures.record_followers(fixture, f"{team_id}#{last}")
                    return budget
        await self.repositories.fixtures.record_followers(fixture, None)
        return budget

    async def _add(self, fixture: Fixture, team_id: str, user_ids: Iterable[str]) -> list[Follow]:
        now = self.clock.milliseconds()
        expires_at = max(follow_expiry(fixture.start_time, fixture.match_type), now // 1000 + 3_600)
        return await self.repositories.follows.add_for_team(
            [
                Follow(
                    match_id=fixture.match_id,
                    user_id=user_id,
                    team_id=team_id,
                    created_at=now,
                    expires_at=expires_at,
                    via_team_id=team_id,
                )
                for user_id in user_ids
            ]
        )

    async def _scheduled_fixtures(self, team_id: str) -> list[Fixture]:
        now = self.clock.milliseconds()
        since, until = (
            format_start_time(now + round(offset.total_seconds() * 1000))
            for offset in (-_PAST, _FUTURE)
        )
        found: list[Fixture] = []
        for league in await self.repositories.leagues.active():
            start = None
            while True:
                page, start = await self.repositories.fixtures.by_date(
                    league.code, since, until, _PAGE, start
                )
                found += [fixture for fixture in page if team_id in fixture.team_ids]
                if start is None:
                    break
        return [fixture for fixture in found if not fixture.status.is_over]

    async def _follows_via(self, team_id: str, user_id: str) -> list[Follow]:
        found: list[Follow] = []
        start = None
        while True:
            page, start = await self.repositories.follows.list_by_user(
                user_id, self.clock.seconds(), _PAGE, start
            )
            found += [follow for follow in page if follow.via_team_id == team_id]
            if start is None:
                return found
