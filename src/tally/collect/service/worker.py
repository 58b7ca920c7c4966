"""Applies what waits in the inbox: each event once, those of one athlete in the order of their time.

An event is claimed with a lease, written down as a workout, has the milestones moved, and is marked
as done and removed, in this order; a few of one athlete that wait together move the milestones
once. Whatever fails gives the claim back and has the event wait longer each time; a crash anywhere
leaves an event that the next run picks up when the lease is over. Every step may run twice: the
workout stands as its newest event left it, and parts are minted once.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, NamedTuple

from tally.collect.model import Connection, WebhookEvent, Workout
from tally.collect.repository.idempotency import Claim, IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.table import SHARDS
from tally.collect.service.audit import AuditTrail
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.linking import Linking
from tally.collect.service.metrics import InboxFigures
from tally.collect.service.ports import Revoked, Strava
from tally.errors import Conflict
from tally.kit import logs
from tally.kit.clock import EPOCH, Clock, rfc3339
from tally.kit.ids import new_uuid

LEASE_SECONDS: Final = 60
# Events of so many athletes at a time: enough to keep the store's writer busy, and few enough that
# a request which comes in meanwhile has its turn within milliseconds.
AT_ONCE: Final = 6
# While there is work, the next look follows soon: small bites, where long ones would make everybody
# else wait.
BUSY_SECONDS: Final = 0.05
# Of one athlete, before the milestones are moved: what piled up is measured once, and well within
# the lease.
AT_A_TIME: Final = 10
FIRST_WAIT: Final = 5
LONGEST_WAIT: Final = 3600

_log = logs.logger()


class _Applied(NamedTuple):
    """An event whose news has been written, and whose milestones may move by it."""

    told: WebhookEvent
    moves: str | None


@dataclass(frozen=True, slots=True)
class InboxWorker:
    """One of any number of workers, in any number of processes."""

    main: CollectRepository
    idempotency: IdempotencyRepository
    linking: Linking
    strava: Strava
    engine: ProgressEngine
    audit: AuditTrail
    clock: Clock
    figures: InboxFigures
    chance: random.Random = field(default_factory=random.SystemRandom)

    async def run(self) -> float | None:
        """Apply what is ready, and say when to look again if that is sooner than usual."""
        shards = await asyncio.gather(*(self.main.waiting(shard) for shard in range(SHARDS)))
        self.figures.waiting.set(sum(map(len, shards)))
        by_owner: dict[int, list[WebhookEvent]] = defaultdict(list)
        for waiting in shards:
            for told in waiting:
                by_owner[told.owner_id].append(told)
        room, token = asyncio.Semaphore(AT_ONCE), new_uuid()

        async def work_off(waiting: Sequence[WebhookEvent]) -> int:
            async with room:
                return await self._work_off(waiting, token)

        outcomes = await asyncio.gather(
            *(work_off(waiting) for waiting in by_owner.values()), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome  # the store is away: the events stay where they are until the next run
        return BUSY_SECONDS if any(outcomes) else None

    async def _work_off(self, waiting: Sequence[WebhookEvent], token: str) -> int:
        """Apply the events of one athlete, and say how many are out of the way."""
        done, blocked = 0, set[int]()
        for first in range(0, len(waiting), AT_A_TIME):
            done += await self._apply_some(waiting[first : first + AT_A_TIME], token, blocked)
        return done

    async def _apply_some(
        self, waiting: Sequence[WebhookEvent], token: str, blocked: set[int]
    ) -> int:
        """Write what these events tell, have it move the milestones once, and put the events out of the way.

        After one that has to wait, the others of the same object are `blocked`.
        """
        done, applied = 0, list[_Applied]()
        for told in waiting:
            if told.object_id in blocked:
                continue
            claim = await self._claim(told, token)
            if claim is Claim.DONE:
                await self.main.remove_event(told)
                done += 1
            elif claim is Claim.TAKEN or not await self._apply(told, token, applied):
                blocked.add(told.object_id)
        try:
            await self._move(applied)
        except Exception as error:  # noqa: BLE001  (whatever it is, the events are not lost: they wait and are tried again)
            for each in applied:
                await self._put_off(each.told, token, error)
            return done
        return done + sum(
            await asyncio.gather(*(self._finish(each.told, token) for each in applied))
        )

    def _is_ready(self, told: WebhookEvent) -> bool:
        """Whether its time has come; while Strava's limit is used up, that of activities has not."""
        wants_activity = told.object_type == "activity" and told.aspect_type != "delete"
        return told.not_before <= self.clock.seconds() and not (
            wants_activity and self.strava.is_resting()
        )

    async def _claim(self, told: WebhookEvent, token: str) -> Claim:
        """`token` is this run's, which takes up an event once; what is not ready is left as if another had it."""
        if not self._is_ready(told):
            return Claim.TAKEN
        return await self.idempotency.claim(_key(told), token, self.clock.seconds(), LEASE_SECONDS)

    async def _apply(self, told: WebhookEvent, token: str, applied: list[_Applied]) -> bool:
        """Whether what the event tells has been written; if not, it waits."""
        try:
            with logs.bound(
                service="collect", correlation_id=told.correlation_id, action="collect_event"
            ):
                applied.append(_Applied(told, await self._write(told)))
        except Exception as error:  # noqa: BLE001  (whatever it is, the event is not lost: it waits and is tried again)
            await self._put_off(told, token, error)
            return False
        return True

    async def _finish(self, told: WebhookEvent, token: str) -> bool:
        if not await self.idempotency.finish(_key(told), token, self.clock.seconds()):
            return False  # the lease ran out, and whoever has the event now will see it through
        await self.main.remove_event(told)
        self.figures.lag.observe(max(0, self.clock.milliseconds() - told.received_ms) / 1000)
        return True

    async def _put_off(self, told: WebhookEvent, token: str, error: Exception) -> None:
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(told.attempts, 20)) * self.chance.uniform(
            0.5, 1
        )
        wait = max(wait, getattr(error, "retry_after", None) or 0)
        self.figures.put_off.inc()
        _log.warning(
            "Event put off",
            action="collect_event",
            event_key=told.key[:12],
            seconds=round(wait),
            error=error,
        )
        await self.main.put_off(told, self.clock.seconds() + round(wait))
        await self.idempotency.release(_key(told), token)

    async def _write(self, told: WebhookEvent) -> str | None:
        """Write what an event tells; whose milestones may have moved by it, if anybody's."""
        if told.is_deauthorisation:
            await self._deauthorised(told)
            return None
        user_id = await self.main.owner(told.owner_id) if told.object_type == "activity" else None
        connection = await self.main.connection(user_id) if user_id is not None else None
        if connection is None or connection.athlete_id != told.owner_id:
            return None  # nobody here has linked this athlete: there is nothing to do and nobody to tell
        logs.bind(user_id=connection.user_id)
        known = await self.main.workout(connection.user_id, told.object_id)
        if known is not None and known.event_time > told.event_time:
            return None
        if told.aspect_type == "delete":
            await self.main.put_workout(self._tombstone(connection, told, known), told.owner_id)
            return None
        found = await self._fetch(connection, told)
        if found is None:
            return None  # gone by now: its deletion is told by an event of its own
        whole = replace(found, user_id=connection.user_id, event_time=told.event_time)
        return connection.user_id if await self.main.put_workout(whole, told.owner_id) else None

    async def _fetch(self, connection: Connection, told: WebhookEvent) -> Workout | None:
        access = await self.linking.access_token(connection)
        try:
            return await self.strava.activity(access, told.object_id, told.owner_id)
        except Revoked:
            # It may have been revoked or rotated a moment ago: once more, with a token that is
            # surely new.
            access = await self.linking.access_token(connection, stale=access)
            return await self.strava.activity(access, told.object_id, told.owner_id)

    async def _move(self, applied: Sequence[_Applied]) -> None:
        """Move the milestones of whoever has new workouts.

        Of several that came together, the last is the cause.
        """
        causes = {each.moves: each.told for each in applied if each.moves is not None}
        for user_id, told in causes.items():
            correlation = {"correlation_id": told.correlation_id, "user_id": user_id}
            with logs.bound(service="collect", action="collect_event", **correlation):
                await self._move_one(user_id)

    async def _move_one(self, user_id: str) -> None:
        try:
            await self.engine.move_all(user_id)
        except Conflict as error:
            # Trying again would not help; the workout is kept, and the person is told by recompute.
            _log.warning("Milestones not moved", action="collect_event", why=error.code)
            self.audit.record("MILESTONE_NOT_MOVED", user_id, {"why": error.code})

    async def _deauthorised(self, told: WebhookEvent) -> None:
        users = await self.main.users_of(told.owner_id)
        owner = await self.main.owner(told.owner_id)
        when = rfc3339(EPOCH + timedelta(seconds=told.event_time))
        for user_id in users | ({owner} if owner else set()):
            connection = await self.main.connection(user_id)
            if connection is not None and connection.connected_at > when:
                continue  # linked anew since then: the news is of the link before
            await self.linking.forget(user_id, told.owner_id)
            self.audit.record("STRAVA_DEAUTHORISED", user_id, {"athlete": told.owner_id})

    def _tombstone(
        self, connection: Connection, told: WebhookEvent, known: Workout | None
    ) -> Workout:
        """The workout as it was, deleted; also of one that was never seen, so that a late creation cannot bring it back."""
        when = rfc3339(EPOCH + timedelta(seconds=told.event_time))
        never_seen = Workout(
            connection.user_id, told.object_id, "", "Unknown", when, 0, 0, 0, 0, told.event_time
        )
        return replace(
            known or never_seen, is_deleted=True, deleted_at=when, event_time=told.event_time
        )


def _key(told: WebhookEvent) -> str:
    return f"STRAVA#{told.key}"
