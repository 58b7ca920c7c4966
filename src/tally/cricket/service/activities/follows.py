"""Follows and subscriptions of users; following and unfollowing start and end Live Activities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tally.cricket.model.errors import (
    MAX_ACTIVITIES_PER_USER,
    match_not_found,
    match_over,
    not_followed,
    subscription_not_found,
    team_not_in_match,
    too_many_activities,
)
from tally.cricket.model.events import AlertChoice
from tally.cricket.model.records import (
    NEUTRAL,
    ActivitySubscription,
    EndReason,
    Fixture,
    Follow,
    fixture_follow_expiry,
)
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.cricket.service.activities.unfollows import unfollow_match
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
        self,
        match_id: str,
        user_id: str,
        team_id: str | None,
        alerts: AlertChoice | None = None,
    ) -> tuple[Fixture, Follow]:
        """Follow a match; if it is live, start Live Activities on all devices of the user.

        Without `alerts`, an existing follow keeps its choice.
        """
        fixture = await self._fixture(match_id)
        view = _validate_team(fixture, team_id)
        if fixture.status.is_over:
            raise match_over()
        now = self.clock.milliseconds()
        expires_at = fixture_follow_expiry(fixture, now)
        follow = await self.follows.follow(
            Follow(
                match_id=match_id,
                user_id=user_id,
                team_id=view,
                alerts=alerts or AlertChoice.ALL,
                created_at=now,
                expires_at=expires_at,
            ),
            keep_alerts=alerts is None,
        )
        await self._on_changed(fixture, follow, alerts)
        return fixture, follow

    async def change(
        self,
        match_id: str,
        user_id: str,
        team_id: str | msgspec.UnsetType | None,
        alerts: AlertChoice | None,
    ) -> Follow:
        """Change the team (None: neutral) or the alert choice of a follow; the rest stays."""
        fixture = await self._fixture(match_id)
        view = None if team_id is msgspec.UNSET else _validate_team(fixture, team_id)
        follow = await self.follows.change(
            match_id, user_id, self.clock.seconds(), team_id=view, alerts=alerts
        )
        if follow is None:
            raise not_followed()
        await self._on_changed(fixture, follow, alerts)
        return follow

    async def _on_changed(
        self, fixture: Fixture, follow: Follow, alerts: AlertChoice | None
    ) -> None:
        """Apply a follow to what the devices display, if the match is live."""
        if alerts is not None:
            await self.subscriptions.change_alerts(follow.match_id, follow.user_id, alerts)
        if fixture.is_live:
            await self.activities.on_followed(fixture, follow)

    async def unfollow(
        self, match_id: str, user_id: str, reason: EndReason = EndReason.USER_UNFOLLOW
    ) -> None:
        """Unfollow a match and end its Live Activities; a repetition after a crash completes it."""
        await unfollow_match(self.activities.repositories, self.clock, match_id, user_id)
        await self.activities.on_unfollowed(match_id, user_id, reason)

    async def subscribe(
        self, match_id: str, user_id: str, push_token: str, team_id: str | None
    ) -> ActivitySubscription:
        """Store the push token of a Live Activity that the app started itself."""
        fixture = await self._fixture(match_id)
        if fixture.status.is_over:
            raise match_over()
        now = self.clock.milliseconds()
        expires_at = fixture_follow_expiry(fixture, now)
        follow = await self.follows.get(match_id, user_id, now // 1000)
        known = {
            subscription.push_token
            for subscription in await self.subscriptions.list_by_owner(user_id, match_id)
        }
        if push_token not in known and len(known) >= MAX_ACTIVITIES_PER_USER:
            raise too_many_activities()
        return await self.subscriptions.register(
            ActivitySubscription(
                match_id=match_id,
                push_token=push_token,
                user_id=user_id,
                team_id=_validate_team(fixture, team_id),
                alerts=AlertChoice.ALL if follow is None else follow.alerts,
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
