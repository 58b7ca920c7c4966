"""Follows and subscriptions of users; following and unfollowing start and end Live Activities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tally.cricket.model.errors import (
    match_not_found,
    match_over,
    not_followed,
    subscription_not_found,
    team_not_in_match,
)
from tally.cricket.model.records import (
    NEUTRAL,
    ActivitySubscription,
    EndReason,
    Fixture,
    Follow,
    follow_expiry,
)
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True)
class FollowService:
    """Follows matches, and subscribes Live Activities that the app started itself."""

    follows: FollowRepository
    fixtures: FixtureRepository
    subscriptions: ActivitySubscriptionRepository
    clock: Clock
    activities: ActivityService

    async def get(self, match_id: str, user_id: str) -> Follow:
        follow = await self.follows.get(match_id, user_id, self.clock.seconds())
        if follow is None:
            raise not_followed()
        return follow

    async def list_by_user(
        self, user_id: str, limit: int, start: Mapping[str, Any] | None
    ) -> tuple[list[Follow], Mapping[str, Any] | None]:
        return await self.follows.list_by_user(user_id, self.clock.seconds(), limit, start)

    async def follow(
        self, match_id: str, user_id: str, team_id: str | None
    ) -> tuple[Fixture, Follow]:
        """Follow a match; if it is live, start Live Activities on all devices of the user."""
        fixture = await self._fixture(match_id)
        view = _validate_team(fixture, team_id)
        if fixture.archived_at is not None:
            raise match_over()
        now = self.clock.milliseconds()
        expires_at = max(follow_expiry(fixture.start_time, fixture.match_type), now // 1000 + 3_600)
        follow = await self.follows.follow(
            Follow(
                match_id=match_id,
                user_id=user_id,
                team_id=view,
                created_at=now,
                expires_at=expires_at,
            )
        )
        if fixture.is_live:
            await self.activities.on_followed(fixture, follow)
        return fixture, follow

    async def change_team(self, match_id: str, user_id: str, team_id: str | None) -> Follow:
        fixture = await self._fixture(match_id)
        if not await self.follows.change_team(
            match_id, user_id, _validate_team(fixture, team_id), self.clock.seconds()
        ):
            raise not_followed()
        follow = await self.get(match_id, user_id)
        if fixture.is_live:
            await self.activities.on_followed(fixture, follow)
        return follow

    async def unfollow(
        self, match_id: str, user_id: str, reason: EndReason = EndReason.USER_UNFOLLOW
    ) -> None:
        """Unfollow a match and end its Live Activities; a repetition after a crash completes it."""
        await self.follows.unfollow(match_id, user_id, self.clock.seconds())
        await self.activities.on_unfollowed(match_id, user_id, reason)

    async def subscribe(
        self, match_id: str, user_id: str, push_token: str, team_id: str | None
    ) -> ActivitySubscription:
        """Store the push token of a Live Activity that the app started itself."""
        fixture = await self._fixture(match_id)
        if fixture.archived_at is not None:
            raise match_over()
        now = self.clock.milliseconds()
        expires_at = max(follow_expiry(fixture.start_time, fixture.match_type), now // 1000 + 3_600)
        return await self.subscriptions.register(
            ActivitySubscription(
                match_id=match_id,
                push_token=push_token,
                user_id=user_id,
                team_id=_validate_team(fixture, team_id),
                created_at=now,
                expires_at=expires_at,
            )
        )

    async def unsubscribe(self, match_id: str, user_id: str, push_token: str) -> None:
        if not await self.subscriptions.remove(match_id, push_token, user_id):
            raise subscription_not_found()

    async def _fixture(self, match_id: str) -> Fixture:
        fixture = await self.fixtures.get(match_id)
        if fixture is None:
            raise match_not_found()
        return fixture


def _validate_team(fixture: Fixture, team_id: str | None) -> str:
    if team_id is None or team_id == NEUTRAL:
        return NEUTRAL
    if team_id not in fixture.team_ids:
        raise team_not_in_match()
    return team_id
