"""The lifecycle of Live Activities as users and their apps drive it: `pending → active → ended`.

Following a live match starts a Live Activity on each device of the user; the orchestrator does the
same for matches that go live. The app registers an update token when the activity runs, and again
whenever iOS changes the token. The activity ends when the user dismisses it or unfollows the match.
Requests wait at most `PUSH_TIMEOUT_SECONDS` for their pushes; the orchestrator completes the rest.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Final

from tally.cricket.model.errors import activity_ended
from tally.cricket.model.lifecycle import ANY_REASON
from tally.cricket.model.push import Push, PushOutcome
from tally.cricket.model.records import (
    NEUTRAL,
    ActivityStatus,
    EndReason,
    Fixture,
    Follow,
    LiveActivity,
    PushTarget,
)
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.endings import ActivityEnder
from tally.cricket.service.activities.match_payloads import PUSH_EXPIRATION_SECONDS, MatchPayloads
from tally.cricket.service.activities.starts import ActivityStarter, Follower, activity_expiry
from tally.cricket.service.ports import PushGateway, ReadDisplay
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within

PUSH_TIMEOUT_SECONDS: Final = 2.0
# More matches than a user follows at a time; the orchestrator covers the rest.
MAX_FOLLOWS: Final = 100

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityService:
    """Starts, registers and ends the Live Activities of users."""

    repositories: Repositories
    starter: ActivityStarter
    ender: ActivityEnder
    apns: PushGateway
    read_display: ReadDisplay
    clock: Clock

    async def on_followed(self, fixture: Fixture, follow: Follow) -> None:
        """Start missing Live Activities of a new follower, and apply a changed team to the rest."""
        existing = await self.repositories.activities.list_by_user(
            follow.match_id, follow.user_id, self.clock.milliseconds()
        )
        payloads = self._payloads(follow.match_id)
        changed = [activity for activity in existing if activity.team_id != follow.team_id]
        await asyncio.gather(
            *(
                self.repositories.activities.change_team(activity, follow.team_id)
                for activity in changed
            )
        )
        by_device = {
            activity.device_id: replace(activity, team_id=follow.team_id) for activity in existing
        }

        async def read_channel() -> str | None:
            match = await self.repositories.matches.get(follow.match_id)
            return None if match is None else match.channel_id

        starts = await self.starter.claim(
            Follower(fixture, follow, by_device), payloads, ANY_REASON, read_channel
        )
        await self._send_in_time(self.starter.send_few(starts))
        active = [
            by_device[activity.device_id]
            for activity in changed
            if activity.status is ActivityStatus.ACTIVE
        ]
        await self._send_in_time(
            asyncio.gather(*(self._refresh(activity, payloads) for activity in active))
        )

    async def on_device_ready(self, user_id: str) -> None:
        """Start the user's live matches on a device that has registered a push-to-start token."""
        follows, _ = await self.repositories.follows.list_by_user(
            user_id, self.clock.seconds(), MAX_FOLLOWS
        )
        fixtures = await self.repositories.fixtures.get_many(follow.match_id for follow in follows)
        for follow in follows:
            fixture = fixtures.get(follow.match_id)
            if fixture is not None and fixture.is_live and not fixture.status.is_over:
                await self.on_followed(fixture, follow)

    async def register(
        self, fixture: Fixture, user_id: str, device_id: str, update_token: str, team_id: str
    ) -> LiveActivity:
        """Record that a Live Activity runs on this device, with this update token.

        Raises Conflict and sends an end push if the activity has ended.
        """
        now = self.clock.milliseconds()
        follow = await self.repositories.follows.get(fixture.match_id, user_id, now // 1000)
        previous = await self.repositories.activities.get(fixture.match_id, user_id, device_id, now)
        registered = LiveActivity(
            match_id=fixture.match_id,
            user_id=user_id,
            device_id=device_id,
            team_id=follow.team_id if follow is not None and team_id == NEUTRAL else team_id,
            status=ActivityStatus.ACTIVE,
            created_at=now,
            updated_at=now,
            expires_at=activity_expiry(fixture, now),
            update_token=update_token,
        )
        is_over = fixture.archived_at is not None or fixture.status.is_over
        active = (
            None
            if follow is None or is_over
            else await self.repositories.activities.activate(registered)
        )
        payloads = self._payloads(fixture.match_id)
        if active is None:
            pushes = await self.ender.pushes([registered], payloads)
            await self._send_in_time(self.ender.send_few(pushes))
            raise activity_ended()
        if previous is None or (
            previous.status is not ActivityStatus.ACTIVE
            and previous.shown != await payloads.content_hash(active.team_id)
        ):
            await self._send_in_time(self._refresh(active, payloads))
        return active

    async def dismiss(self, match_id: str, user_id: str, device_id: str) -> None:
        """End a Live Activity that the user dismissed on this device, and unfollow the match."""
        now = self.clock.milliseconds()
        dismissed = PushTarget(
            match_id=match_id, user_id=user_id, device_id=device_id, team_id=NEUTRAL
        )
        await self.repositories.activities.end(dismissed, EndReason.USER_DISMISSED, now)
        await self.repositories.follows.unfollow(match_id, user_id, now // 1000)
        await self.on_unfollowed(match_id, user_id, EndReason.USER_UNFOLLOW)

    async def on_unfollowed(self, match_id: str, user_id: str, reason: EndReason) -> None:
        """End the match's Live Activities on all devices of a user who no longer follows it."""
        payloads = self._payloads(match_id)
        removed = await self.repositories.subscriptions.remove_by_user(match_id, user_id)
        activities = await self.repositories.activities.list_by_user(
            match_id, user_id, self.clock.milliseconds()
        )
        pushes = [
            *await self.ender.end(activities, reason, payloads),
            *await self.ender.pushes(removed, payloads),
        ]
        await self._send_in_time(self.ender.send_few(pushes))

    async def _refresh(self, activity: LiveActivity, payloads: MatchPayloads) -> None:
        """Send the current state to an activity that displays an old or unknown one."""
        if activity.update_token is None:
            return
        payload = await payloads.update(activity.team_id)
        result = await self.apns.send(
            Push(
                token=activity.update_token,
                payload=payload,
                priority=5,
                expiration=self.clock.seconds() + PUSH_EXPIRATION_SECONDS,
                is_replaceable=True,
            )
        )
        if result.outcome is PushOutcome.TOKEN_INVALID:
            now = self.clock.milliseconds()
            await self.repositories.activities.end(
                activity, EndReason.TOKEN_INVALID, now, only_token=activity.update_token
            )

    def _payloads(self, match_id: str) -> MatchPayloads:
        return MatchPayloads(match_id, self.read_display, self.clock)

    async def _send_in_time(self, sending: Awaitable[object]) -> None:
        try:
            await finish_within(self.clock, PUSH_TIMEOUT_SECONDS, sending)
        except DeadlineExceeded:
            _log.warning(
                "Live Activity pushes timed out; the orchestrator completes them",
                action="activity_push_timed_out",
                seconds=PUSH_TIMEOUT_SECONDS,
            )
