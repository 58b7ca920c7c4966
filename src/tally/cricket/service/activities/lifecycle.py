"""The lifecycle of Live Activities as users and their apps drive it: `pending → active → ended`.

Following a live match starts a Live Activity on each device of the user; the orchestrator does the
same for matches that go live. The app registers an update token when the activity runs, and again
whenever iOS changes the token; on a broadcast channel it confirms the activity instead. It reports
an activity that iOS or the app ended, so that it is started again. The activity ends when the user
dismisses it or unfollows the match.
Requests wait at most `PUSH_TIMEOUT_SECONDS` for their pushes; the orchestrator completes the rest.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tally.cricket.model.errors import (
    MAX_ACTIVITIES_PER_USER,
    activity_ended,
    device_not_startable,
    match_not_live,
    not_followed,
    too_many_activities,
)
from tally.cricket.model.events import AlertChoice
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
from tally.cricket.service.activities.unfollows import unfollow_match
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
        """Start missing Live Activities of a new follower, and apply changes to the others."""
        existing = await self.repositories.activities.list_by_user(
            follow.match_id, follow.user_id, self.clock.milliseconds()
        )
        payloads = self._payloads(follow.match_id)
        changed = [activity for activity in existing if activity.team_id != follow.team_id]
        await asyncio.gather(
            *(
                self.repositories.activities.change_follow(activity, follow.team_id, follow.alerts)
                for activity in existing
                if (activity.team_id, activity.alerts) != (follow.team_id, follow.alerts)
            )
        )
        by_device = {
            activity.device_id: replace(activity, team_id=follow.team_id, alerts=follow.alerts)
            for activity in existing
        }

        starts = await self.starter.claim(
            Follower(fixture, follow, by_device),
            payloads,
            ANY_REASON,
            partial(self._channel, follow.match_id),
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
            if fixture is not None and fixture.is_live:
                await self.on_followed(fixture, follow)

    async def register(
        self, fixture: Fixture, user_id: str, device_id: str, update_token: str, team_id: str
    ) -> LiveActivity:
        """Record that a Live Activity runs on this device, with this update token.

        Raises Conflict and sends an end push if the activity has ended.
        """
        now = self.clock.milliseconds()
        follow = await self.repositories.follows.get(fixture.match_id, user_id, now // 1000)
        known = {
            activity.device_id: activity
            for activity in await self.repositories.activities.list_by_user(
                fixture.match_id, user_id, now
            )
        }
        if device_id not in known and len(known) >= MAX_ACTIVITIES_PER_USER:
            raise too_many_activities()
        previous = known.get(device_id)
        registered = LiveActivity(
            match_id=fixture.match_id,
            user_id=user_id,
            device_id=device_id,
            team_id=follow.team_id if follow is not None and team_id == NEUTRAL else team_id,
            alerts=AlertChoice.ALL if follow is None else follow.alerts,
            status=ActivityStatus.ACTIVE,
            created_at=now,
            updated_at=now,
            expires_at=activity_expiry(fixture, now),
            update_token=update_token,
        )
        active = (
            None
            if follow is None or fixture.status.is_over
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

    async def confirm(self, fixture: Fixture, user_id: str, device_id: str) -> LiveActivity:
        """Record that a Live Activity runs on this device, which makes it active on a channel.

        One with a token of its own stays pending until the token is registered. Raises Conflict if
        the activity has ended.
        """
        now, match_id = self.clock.milliseconds(), fixture.match_id
        activities = self.repositories.activities
        follow = await self.repositories.follows.get(match_id, user_id, now // 1000)
        if follow is None or fixture.status.is_over:
            raise activity_ended()
        activity = await activities.confirm(
            match_id, user_id, device_id, now
        ) or await activities.get(match_id, user_id, device_id, now)
        if activity is None or activity.status is ActivityStatus.ENDED:
            raise activity_ended()
        return activity

    async def report_ended(self, match_id: str, user_id: str, device_id: str) -> None:
        """Record that iOS or the app ended a Live Activity; it is started again when it is due."""
        now = self.clock.milliseconds()
        await self.repositories.activities.mark_missing(match_id, user_id, device_id, now)

    async def resend_start(self, fixture: Fixture, user_id: str, device_id: str) -> LiveActivity:
        """Send a start to a device in any state, at once; an operator asks for it."""
        now, match_id = self.clock.milliseconds(), fixture.match_id
        if not fixture.is_live or fixture.status.is_over:
            raise match_not_live()
        follow = await self.repositories.follows.get(match_id, user_id, now // 1000)
        if follow is None:
            raise not_followed()
        activities = self.repositories.activities
        seen = await activities.get(match_id, user_id, device_id, now)
        follower = Follower(fixture, follow, {} if seen is None else {device_id: seen})
        starts = await self.starter.claim_again(
            follower, self._payloads(match_id), device_id, partial(self._channel, match_id)
        )
        if starts is None:
            raise device_not_startable()
        await self._send_in_time(self.starter.send_few(starts))
        activity = await activities.get(match_id, user_id, device_id, now)
        if activity is None:
            raise activity_ended()
        return activity

    async def end_on_device(self, user_id: str, device_id: str | None = None) -> None:
        """End a user's Live Activities on a device, or on all of them.

        One on a channel has no token, so that only the app can end it.
        """
        activities = await self.repositories.activities.list_by_owner(user_id)
        selected = [activity for activity in activities if device_id in {None, activity.device_id}]
        pushes = [
            push
            for activity in selected
            for push in await self.ender.end(
                [activity], EndReason.USER_UNFOLLOW, self._payloads(activity.match_id)
            )
        ]
        await self._send_in_time(self.ender.send_few(pushes))

    async def delete_user(self, user_id: str) -> None:
        """Delete a user's devices, follows, subscriptions and Live Activities, and end these.

        Idempotent: a repetition after a crash completes it. The record of an activity whose end
        could not be delivered remains until it is, and expires with the match.
        """
        repositories = self.repositories
        for device in await repositories.devices.list_by_user(user_id, 0):
            await repositories.devices.delete(user_id, device.device_token, 0)
        for team in await repositories.follows.list_teams(user_id):
            await repositories.follows.unfollow_team(team.team_id, user_id)
        while followed := await repositories.follows.remove_by_user(user_id):
            await repositories.notifications.remove(followed, user_id)
        # Afterwards, because the end of a match keeps the follows that it deletes.
        finished = await repositories.deleted_follows.match_ids(user_id)
        for match_id in finished:
            await repositories.deleted_follows.remove(match_id, user_id)
        await repositories.notifications.remove(finished, user_id)
        await self.end_on_device(user_id)
        for activity in await repositories.activities.list_by_owner(user_id):
            await repositories.activities.delete_ended(activity)
        for subscription in await repositories.subscriptions.list_by_owner(user_id):
            match_id = subscription.match_id
            await repositories.subscriptions.remove(match_id, subscription.push_token, user_id)
            pushes = await self.ender.pushes([subscription], self._payloads(match_id))
            await self._send_in_time(self.ender.send_few(pushes))

    async def dismiss(self, match_id: str, user_id: str, device_id: str) -> None:
        """End a Live Activity that the user dismissed on this device, and unfollow the match."""
        now = self.clock.milliseconds()
        dismissed = PushTarget(
            match_id=match_id, user_id=user_id, device_id=device_id, team_id=NEUTRAL
        )
        await self.repositories.activities.end(dismissed, EndReason.USER_DISMISSED, now)
        await unfollow_match(self.repositories, self.clock, match_id, user_id)
        await self.on_unfollowed(match_id, user_id, EndReason.USER_UNFOLLOW)

    async def on_unfollowed(self, match_id: str, user_id: str, reason: EndReason) -> None:
        """End the match's Live Activities on all devices of a user who no longer follows it."""
        payloads = self._payloads(match_id)
        await self.repositories.deleted_follows.remove(match_id, user_id)
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

    async def _channel(self, match_id: str) -> str | None:
        match = await self.repositories.matches.get(match_id)
        return None if match is None else match.channel_id

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
