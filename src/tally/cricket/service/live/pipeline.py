"""The live pipeline of one match: from what a poll says to what people see.

Whoever calls holds the match's lock. What is written, and in which order, makes a crash at any
point harmless:

1. the balls, which a repeated poll only completes;
2. the match's record, in one conditional write: which events have been told, the timestamp of the new state and its fingerprints.
   From here on the events count as told, and no later state can have an older timestamp;
3. the display states for those who ask, the pages of those who watch, and the devices;
4. when all devices have been reached, the state hash of each view.

A crash before 2 repeats the step; after it, the fingerprint differs from the state hash, so the
same state is delivered again, with the same timestamp. An instance that has lost its match fails at
2, since the record has another version by then.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from tally.cricket.model.display import ball_symbol
from tally.cricket.model.display_content import sanitize_text
from tally.cricket.model.event_texts import event_sentence, event_title
from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.hashing import content_hash
from tally.cricket.model.payloads import Alert, max_content_bytes
from tally.cricket.model.pipeline import (
    LAST_BALLS,
    PipelineState,
    PollResult,
    pipeline_state,
    process_poll,
)
from tally.cricket.model.records import ActiveMatch, CachedDisplay, PollerState, StateHash
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.display_cache import DisplayCacheRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.service.activities.delivery import Audience, FanOut, Showing
from tally.cricket.service.live.processing import MatchProcessing
from tally.cricket.service.ports import Publisher, PushGateway
from tally.cricket.service.queries.feeds import FeedCache
from tally.errors import Conflict
from tally.kit import logs
from tally.kit.clock import Clock

# What others read is renewed this often, though nothing has changed.
RENEWED_MS: Final = 10_000
SHOWN_SECONDS: Final = 120
SHOWN_AFTER_SECONDS: Final = 86_400
TRIES: Final = 5
# What the record says beside the memory: that the end of the match has been told.
IS_OVER: Final = "isOver"

_log = logs.logger()


class Overtaken(Conflict):
    """Another instance has seen to the match meanwhile."""

    default_code = "match_overtaken"


@dataclass(slots=True)
class LiveMatch:
    """What an instance holds of a match that it sees to: its fan-out, and what it took and showed last."""

    fan_out: FanOut
    version: int = -1
    heard: MatchFeed | None = None
    contents: dict[str, dict[str, Any]] = field(default_factory=dict)
    renewed_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Takes polls, one after the other for each match."""

    active: ActiveMatchRepository
    processing: MatchProcessing
    hashes: StateHashRepository
    displays: DisplayCacheRepository
    activities: LiveActivityRepository
    subscriptions: ActivitySubscriptionRepository
    feeds: FeedCache
    apns: PushGateway
    publisher: Publisher
    clock: Clock
    owner: str

    def open(self, match_id: str) -> LiveMatch:
        """Begin to see to a match."""

        async def done(showing: Showing) -> None:
            await self._delivered(match_id, showing)

        audience = Audience(self.activities, self.subscriptions, self.clock)
        return LiveMatch(FanOut(match_id, audience, self.apns, self.clock, done))

    async def take(
        self, live: LiveMatch, feed: MatchFeed, *, is_final: bool = False
    ) -> tuple[KeyEvent, ...]:
        """The events that are new by this poll; the fan-out of `live` knows what there is to show."""
        now = self.clock.milliseconds()
        record = await self._record(feed.match_id, now)
        memory = pipeline_state(record)
        if feed.received_at < memory.received_at or record.poller_state is PollerState.ENDED:
            return ()
        if not is_final and live.version == record.version and says_the_same(live.heard, feed):
            await self._renew(live, feed, now)
            return ()
        book = await self.processing.get(feed.match_id, record.version)
        taken = process_poll(
            memory, book, feed, now=now, room=max_content_bytes("update"), is_final=is_final
        )
        if taken.book != book:
            await self.processing.put(feed.match_id, taken.book)
        saved = await self._save(record, memory, taken, feed, now)
        self.processing.remember(feed.match_id, saved.version, taken.book)
        # While something is waited for, an answer that says the same is an answer all the same.
        live.heard = feed if taken.contents and not taken.book.missing else None
        live.version = saved.version
        if taken.contents:
            await self._show(live, feed, taken, saved)
        return taken.new

    async def _record(self, match_id: str, now: int) -> ActiveMatch:
        record = await self.active.get(match_id)
        if record is None:
            await self.active.create(
                ActiveMatch(match_id=match_id, last_updated_at=now, owner=self.owner)
            )
            record = await self.active.get(match_id)
        if record is None:
            raise Overtaken(f"The record of match {match_id} comes and goes")
        return record

    async def _save(
        self,
        record: ActiveMatch,
        memory: PipelineState,
        taken: PollResult,
        feed: MatchFeed,
        now: int,
    ) -> ActiveMatch:
        """The commit: from here on the step has been taken."""
        if (
            taken.memory == msgspec.structs.replace(memory, received_at=taken.memory.received_at)
            and taken.contents
        ):
            return record
        balls = taken.book.told[-LAST_BALLS:]
        changed = replace(
            record,
            last_updated_at=now,
            owner=self.owner,
            previous_scores=_scores(feed),
            cooldowns=taken.memory.cooldowns,
            last_balls=tuple(
                {"id": ball.id, "innings": ball.innings, "ball": ball_symbol(ball)}
                for ball in balls
            ),
            extra={
                **record.extra,
                "memory": msgspec.json.encode(taken.memory).decode(),
                IS_OVER: taken.is_over,
            },
        )
        saved = await self.active.save(changed)
        if saved is None:
            raise Overtaken(f"Match {record.match_id} has been seen to by another instance")
        return saved

    async def _show(
        self, live: LiveMatch, feed: MatchFeed, taken: PollResult, record: ActiveMatch
    ) -> None:
        """To those who ask, those who watch, and the devices; to these also if somebody died before they had it."""
        live.contents = taken.contents
        await self._renew(live, feed, self.clock.milliseconds(), is_news=taken.has_changed)
        for event in taken.new:
            _log.info(
                "Key event",
                action="key_event",
                match=feed.match_id,
                kind=event.kind.value,
                innings=event.innings,
            )
        if taken.has_changed or taken.new:
            self.publisher.publish(feed.match_id, taken.contents, taken.new)
        showing = Showing(taken.contents, taken.memory.timestamp, is_end=taken.is_over)
        if taken.has_changed:
            live.fan_out.offer(showing, alert_of(taken.alert), record.channel_id)
        elif await self._is_undelivered(live, feed.match_id, taken.memory):
            shown = taken.memory.displayed_event
            was_alert = shown is not None and shown.kind.is_alert
            live.fan_out.offer(showing, alert_of(shown) if was_alert else None, record.channel_id)
        elif taken.is_over and not live.fan_out.is_busy:
            await self._end(feed.match_id)

    async def _is_undelivered(self, live: LiveMatch, match_id: str, memory: PipelineState) -> bool:
        showing = live.fan_out.showing
        if showing is not None and showing.timestamp == memory.timestamp:
            return False
        stored = [await self.hashes.get(match_id, view) for view in memory.content_hashes]
        return [each.hash if each else None for each in stored] != list(
            memory.content_hashes.values()
        )

    async def _renew(
        self, live: LiveMatch, feed: MatchFeed, now: int, *, is_news: bool = False
    ) -> None:
        """What others read: that the match is seen to, its scores, and its display states."""
        if not is_news and now - live.renewed_at < RENEWED_MS:
            return
        live.renewed_at = now
        if not await self.active.renew(feed.match_id, self.owner, now):
            await self._own(live, feed.match_id, now)
        await self.feeds.put(feed)
        lifetime = SHOWN_AFTER_SECONDS if feed.status.is_over else SHOWN_SECONDS
        for view, content in live.contents.items():
            text = msgspec.json.encode(content).decode()
            expires_at = now // 1000 + lifetime
            shown = CachedDisplay(
                match_id=feed.match_id,
                team_id=view,
                content=text,
                computed_at=now,
                expires_at=expires_at,
            )
            await self.displays.put(shown)

    async def _own(self, live: LiveMatch, match_id: str, now: int) -> None:
        """Another instance saw to the match last; from now on it is this one that renews its record."""
        record = await self.active.get(match_id)
        if record is not None and record.version == live.version:
            saved = await self.active.save(replace(record, owner=self.owner, last_updated_at=now))
            if saved is not None:
                live.version = saved.version
                self.processing.moved(match_id, record.version, saved.version)

    async def _delivered(self, match_id: str, showing: Showing) -> None:
        """Everybody has it: the hashes say so."""
        now = self.clock.milliseconds()
        for view, content in showing.contents.items():
            state = StateHash(
                match_id=match_id, team_id=view, hash=content_hash(content), updated_at=now
            )
            await self.hashes.put(state)
        if showing.is_end:
            await self._end(match_id)

    async def _end(self, match_id: str) -> None:
        """All devices know that the match is over: what is left is to clean up."""
        for _ in range(TRIES):
            record = await self.active.get(match_id)
            if record is None or record.poller_state is PollerState.ENDED:
                return
            if await self.active.save(replace(record, poller_state=PollerState.ENDED)) is not None:
                return
        raise Overtaken(f"The record of match {match_id} changes all the time")


def alert_of(event: KeyEvent | None) -> Alert | None:
    """What lights the screen; texts of outside are made harmless."""
    return (
        None
        if event is None
        else Alert(sanitize_text(event_title(event)), sanitize_text(event_sentence(event), 300))
    )


def says_the_same(before: MatchFeed | None, now: MatchFeed) -> bool:
    """Whether two polls differ in nothing but when they were answered."""
    return (
        before is not None and msgspec.structs.replace(before, received_at=now.received_at) == now
    )


def _scores(feed: MatchFeed) -> dict[str, Any]:
    return {
        str(each.number): {
            "teamId": each.team_id,
            "runs": each.runs,
            "wickets": each.wickets,
            "overs": str(each.overs),
        }
        for each in feed.innings
    }
