"""The life of Live Activities as people and their apps see it: `pending → active → ended`.

A follow of a live match starts one on each device; the orchestrator does the same for matches that
go live. The app hands in a token when it runs, and another one whenever iOS changes it. It ends
when the person swipes it away or follows no longer. Pushes are sent before the request is answered,
but for no longer than `PUSH_SECONDS`: what is left is the orchestrator's.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Final

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
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.service.activities.endings import Ender
from tally.cricket.service.activities.match_payloads import Sheet
from tally.cricket.service.activities.starts import Follower, Starter, activity_expiry
from tally.cricket.service.ports import PushGateway, Show
from tally.errors import Conflict
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within

PUSH_SECONDS: Final = 2.0
UPDATE_SECONDS: Final = 900
# More than anybody follows at one time; the orchestrator sees to the rest.
MAX_FOLLOWED: Final = 100

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityService:
    """Live Activities by match, person and device."""

    activities: LiveActivityRepository
    matches: ActiveMatchRepository
    fixtures: FixtureRepository
    follows: FollowRepository
    subscriptions: ActivitySubscriptionRepository
    starter: Starter
    ender: Ender
    apns: PushGateway
    show: Show
    clock: Clock

    async def followed(self, fixture: Fixture, follow: Follow) -> None:
        """Somebody follows a live match, or has changed sides: start what is not shown yet, and turn what is."""
        known = await self.activities.of_user(
            follow.match_id, follow.user_id, self.clock.milliseconds()
        )
        sheet = self._sheet(follow.match_id)
        turned = [each for each in known if each.team_id != follow.team_id]
        await asyncio.gather(
            *(self.activities.change_team(each, follow.team_id) for each in turned)
        )
        shown = {each.device_id: replace(each, team_id=follow.team_id) for each in known}

        async def channel_of() -> str | None:
            match = await self.matches.get(follow.match_id)
            return None if match is None else match.channel_id

        starts = await self.starter.claim(
            Follower(fixture, follow, shown), sheet, ANY_REASON, channel_of
        )
        await self._in_time(self.starter.send_few(starts))
        on = [shown[each.device_id] for each in turned if each.status is ActivityStatus.ACTIVE]
        await self._in_time(asyncio.gather(*(self._refresh(each, sheet) for each in on)))

    async def device_ready(self, user_id: str) -> None:
        """A device of this person can be started on from now on: show on it what they follow and is live."""
        follows, _ = await self.follows.of_user(user_id, self.clock.seconds(), MAX_FOLLOWED)
        fixtures = await self.fixtures.get_many(follow.match_id for follow in follows)
        for follow in follows:
            fixture = fixtures.get(follow.match_id)
            if fixture is not None and fixture.is_live and not fixture.status.is_over:
                await self.followed(fixture, follow)

    async def register(
        self, fixture: Fixture, user_id: str, device_id: str, update_token: str, team_id: str
    ) -> LiveActivity:
        """A Live Activity runs on this device, and can be reached by this token, which may be a new one for it."""
        now = self.clock.milliseconds()
        follow = await self.follows.get(fixture.match_id, user_id, now // 1000)
        before = await self.activities.get(fixture.match_id, user_id, device_id, now)
        wanted = LiveActivity(
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
        active = None if follow is None or is_over else await self.activities.activate(wanted)
        sheet = self._sheet(fixture.match_id)
        if active is None:
            await self._in_time(self.ender.send_few(await self.ender.pushes([wanted], sheet)))
            raise Conflict("This Live Activity has ended", code="activity_ended")
        if before is None or (
            before.status is not ActivityStatus.ACTIVE
            and before.shown != await sheet.shown(active.team_id)
        ):
            await self._in_time(self._refresh(active, sheet))
        return active

    async def dismiss(self, match_id: str, user_id: str, device_id: str) -> None:
        """The person swiped it away on this device: it has ended, and they follow the match no longer."""
        now = self.clock.milliseconds()
        swiped = PushTarget(
            match_id=match_id, user_id=user_id, device_id=device_id, team_id=NEUTRAL
        )
        await self.activities.end(swiped, EndReason.USER_DISMISSED, now)
        await self.follows.unfollow(match_id, user_id, now // 1000)
        await self.unfollowed(match_id, user_id, EndReason.USER_UNFOLLOW)

    async def unfollowed(self, match_id: str, user_id: str, reason: EndReason) -> None:
        """Somebody follows a match no longer: take it off all their devices."""
        sheet = self._sheet(match_id)
        removed = await self.subscriptions.remove_of_user(match_id, user_id)
        theirs = await self.activities.of_user(match_id, user_id, self.clock.milliseconds())
        pushes = [
            *await self.ender.end(theirs, reason, sheet),
            *await self.ender.pushes(removed, sheet),
        ]
        await self._in_time(self.ender.send_few(pushes))

    async def refused(self, target: PushTarget) -> bool:
        """Apple does not know the token (any more): nothing is shown there, until it is started again."""
        now = self.clock.milliseconds()
        ended = await self.activities.end(
            target, EndReason.TOKEN_INVALID, now, only_token=target.update_token
        )
        return ended is not None

    async def _refresh(self, activity: LiveActivity, sheet: Sheet) -> None:
        """Show the state as it is now: what was shown at the start is over, or is not known."""
        if activity.update_token is None:
            return
        payload = await sheet.update(activity.team_id)
        expiration = self.clock.seconds() + UPDATE_SECONDS
        verdict = await self.apns.send(
            Push(
                token=activity.update_token,
                payload=payload,
                priority=5,
                expiration=expiration,
                is_replaceable=True,
            )
        )
        if verdict.outcome is PushOutcome.TOKEN_INVALID:
            now = self.clock.milliseconds()
            await self.activities.end(
                activity, EndReason.TOKEN_INVALID, now, only_token=activity.update_token
            )

    def _sheet(self, match_id: str) -> Sheet:
        return Sheet(match_id, self.show, self.clock)

    async def _in_time(self, sending: Awaitable[object]) -> None:
        try:
            await finish_within(self.clock, PUSH_SECONDS, sending)
        except DeadlineExceeded:
            _log.warning("Pushes were left for later", action="activity_push", seconds=PUSH_SECONDS)
