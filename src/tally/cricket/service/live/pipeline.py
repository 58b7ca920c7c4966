"""The live pipeline of one match: from a poll to devices and SSE subscribers.

The caller holds the lock of the match. The order of the writes makes a crash at any point harmless:

1. The ball log is stored; a repeated poll only completes it.
2. One conditional write saves the match record: the published events, the timestamp of the new
   state and its content hashes. The new events are written with it, for SSE subscribers. From here
   on the events count as published, and no later state can have an older timestamp.
3. The display cache is updated, which notifies SSE subscribers, and the push fan-out starts.
4. When the fan-out is complete, the state hash of each view is stored.

After a crash before 2 the poll is processed again. After a crash behind it, the content hashes
differ from the state hashes, so that the same state is delivered again with the same timestamp. An
instance that has lost its match fails at 2, because the version of the record has changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from tally.cricket.model.display import ball_symbol
from tally.cricket.model.display_content import content_hash, sanitize_text
from tally.cricket.model.event_texts import event_sentence, event_title
from tally.cricket.model.events import AlertChoice, KeyEvent
from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.payloads import Alert, max_content_bytes
from tally.cricket.model.pipeline import (
    IS_OVER_ATTRIBUTE,
    LAST_BALLS,
    PipelineState,
    PollResult,
    is_alert,
    is_keep_alive_due,
    is_new_result,
    pipeline_state,
    process_poll,
)
from tally.cricket.model.records import ActiveMatch, CachedDisplay, PollerState, StateHash
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.match_payloads import DisplayUpdate
from tally.cricket.service.live.ball_log_cache import BallLogCache
from tally.cricket.service.live.fanout import FanOut
from tally.cricket.service.live.metrics import FeedMetrics
from tally.cricket.service.live.push_targets import PushTargets
from tally.cricket.service.ports import PushGateway
from tally.cricket.service.queries.feeds import FeedCache
from tally.cricket.service.queries.timeline import finished_timeline
from tally.errors import Conflict
from tally.kit import logs
from tally.kit.clock import Clock

# The record and the caches are refreshed this often, even without a change.
REFRESH_INTERVAL_MS: Final = 10_000
DISPLAY_TTL_SECONDS: Final = 120
KEY_EVENT_SECONDS: Final = 2 * 86_400
FINAL_DISPLAY_TTL_SECONDS: Final = 86_400

_log = logs.logger()


class MatchTakenOver(Conflict):
    """Another instance has processed the match in the meantime."""

    default_code = "match_overtaken"


@dataclass(slots=True)
class LiveMatch:
    """The in-memory state of a match that this instance processes.

    `last_feed` is the last poll, if an identical one needs no processing.
    """

    fan_out: FanOut
    version: int = -1
    last_feed: MatchFeed | None = None
    contents: dict[str, dict[str, Any]] = field(default_factory=dict)
    refreshed_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Processes polls, one after the other for each match; `owner` identifies this instance."""

    repositories: Repositories
    ball_logs: BallLogCache
    feeds: FeedCache
    apns: PushGateway
    clock: Clock
    owner: str
    metrics: FeedMetrics

    def open(self, match_id: str) -> LiveMatch:
        """Return the initial in-memory state of a match."""

        async def on_delivered(update: DisplayUpdate) -> None:
            await self._on_delivered(match_id, update)

        targets = PushTargets(
            self.repositories.activities, self.repositories.subscriptions, self.clock
        )
        return LiveMatch(FanOut(match_id, targets, self.apns, self.clock, on_delivered))

    async def hydrate(self, match_ids: Iterable[str]) -> None:
        """Read the ball logs of matches that this instance is about to process."""
        records = [await self.repositories.matches.get(match_id) for match_id in match_ids]
        await self.ball_logs.hydrate(
            {record.match_id: record.version for record in records if record is not None}
        )

    async def process(
        self, live_match: LiveMatch, feed: MatchFeed, *, is_final: bool = False
    ) -> tuple[KeyEvent, ...]:
        """Process one poll and return its new events; the caller runs the fan-out."""
        now = self.clock.milliseconds()
        record = await self._get_or_create_record(feed.match_id, now)
        state = pipeline_state(record)
        has_ended = record.poller_state is PollerState.ENDED
        if feed.received_at < state.received_at or (has_ended and not is_new_result(state, feed)):
            return ()
        if (
            not is_final
            and live_match.version == record.version
            and is_same_poll(live_match.last_feed, feed)
            and not is_keep_alive_due(state, feed, now)
        ):
            await self._refresh(live_match, feed, now)
            return ()
        log = await self.ball_logs.get(feed.match_id, record.version)
        result = process_poll(
            state, log, feed, now=now, max_bytes=max_content_bytes("update"), is_final=is_final
        )
        if result.ball_log != log:
            await self.ball_logs.put(feed.match_id, result.ball_log)
        saved = await self._save(record, state, result, feed, now)
        self.ball_logs.remember(feed.match_id, saved.version, result.ball_log)
        # While balls are missing, an identical poll counts: it is one more without them.
        is_complete = bool(result.contents) and not result.ball_log.missing
        live_match.last_feed = feed if is_complete else None
        live_match.version = saved.version
        if result.contents:
            await self._publish(live_match, feed, result, saved)
        return result.new_events

    async def _get_or_create_record(self, match_id: str, now: int) -> ActiveMatch:
        record = await self.repositories.matches.get(match_id)
        if record is None:
            await self.repositories.matches.create(
                ActiveMatch(match_id=match_id, last_updated_at=now, owner=self.owner)
            )
            record = await self.repositories.matches.get(match_id)
        if record is None:
            raise MatchTakenOver(f"The record of match {match_id} was deleted after its creation")
        return record

    async def _save(
        self,
        record: ActiveMatch,
        state: PipelineState,
        result: PollResult,
        feed: MatchFeed,
        now: int,
    ) -> ActiveMatch:
        """Save the match record, which commits the poll."""
        poller_state = PollerState.PAUSED if feed.status.is_interrupted else PollerState.POLLING
        if (
            result.state == msgspec.structs.replace(state, received_at=result.state.received_at)
            and result.contents
            and record.poller_state is poller_state
        ):
            return record
        balls = result.ball_log.released_balls[-LAST_BALLS:]
        changed = replace(
            record,
            last_updated_at=now,
            owner=self.owner,
            poller_state=poller_state,
            expires_at=None,
            previous_scores=_scores(feed),
            cooldowns=result.state.cooldowns,
            last_balls=tuple(
                {"id": ball.id, "innings": ball.innings, "ball": ball_symbol(ball)}
                for ball in balls
            ),
            extra={
                **record.extra,
                "memory": msgspec.json.encode(result.state).decode(),
                IS_OVER_ATTRIBUTE: result.is_over,
            },
        )
        matches = self.repositories.matches
        if result.new_events:
            expires_at = now // 1000 + KEY_EVENT_SECONDS
            saved = await matches.save_with_events(changed, result.new_events, expires_at)
        else:
            saved = await matches.save(changed)
        if saved is None:
            raise MatchTakenOver(f"Match {record.match_id} was processed by another instance")
        return saved

    async def _publish(
        self, live_match: LiveMatch, feed: MatchFeed, result: PollResult, record: ActiveMatch
    ) -> None:
        """Update the display cache and start the push fan-out.

        Restarts the fan-out when a crash interrupted the previous one.
        """
        if result.is_over:
            await self.repositories.timelines.put(
                finished_timeline(feed.match_id, result.state.published_events, self.clock)
            )
        live_match.contents = result.contents
        await self._refresh(live_match, feed, self.clock.milliseconds(), is_due=result.has_changed)
        for event in result.new_events:
            _log.info(
                "Key event detected",
                action="key_event",
                match=feed.match_id,
                kind=event.kind.value,
                innings=event.innings,
            )
        fan_out, channel_id = live_match.fan_out, record.channel_id
        update = DisplayUpdate(result.contents, result.state.timestamp)
        if result.has_changed:
            self.metrics.record_update(feed.match_id, update.timestamp, feed.received_at)
            alerts = event_alerts(result.alert, result.milestone)
        else:
            missed = await self._undelivered_alerts(live_match, feed.match_id, result.state)
            if missed is None:
                return
            alerts = missed
        if alerts and await self._is_held(feed.match_id):
            alerts = {}
        fan_out.replace_pending(update, alerts, channel_id)

    async def _is_held(self, match_id: str) -> bool:
        fixture = await self.repositories.fixtures.get(match_id)
        return fixture is not None and fixture.is_held

    async def _undelivered_alerts(
        self, live_match: LiveMatch, match_id: str, state: PipelineState
    ) -> dict[AlertChoice, Alert] | None:
        """Return the alerts of a state that the devices lack; None if they have it.

        A keep-alive, whose content they have, alerts nobody.
        """
        update = live_match.fan_out.update
        if update is not None and update.timestamp == state.timestamp:
            return None
        stored = [
            await self.repositories.hashes.get(match_id, view) for view in state.content_hashes
        ]
        hashes = [state_hash.hash for state_hash in stored if state_hash is not None]
        if hashes != list(state.content_hashes.values()):
            event = state.displayed_event if is_alert(state, state.displayed_event) else None
            return event_alerts(event, event)
        is_delivered = all(
            state_hash.updated_at >= state.timestamp * 1000
            for state_hash in stored
            if state_hash is not None
        )
        return None if is_delivered else {}

    async def _refresh(
        self, live_match: LiveMatch, feed: MatchFeed, now: int, *, is_due: bool = False
    ) -> None:
        """Refresh the match record's owner, the feed cache and the display cache, when due."""
        if not is_due and now - live_match.refreshed_at < REFRESH_INTERVAL_MS:
            return
        live_match.refreshed_at = now
        if not await self.repositories.matches.renew(feed.match_id, self.owner, now):
            await self._become_owner(live_match, feed.match_id, now)
        await self.feeds.put(feed)
        ttl = FINAL_DISPLAY_TTL_SECONDS if feed.status.is_over else DISPLAY_TTL_SECONDS
        for view, content in live_match.contents.items():
            await self.repositories.displays.put(
                CachedDisplay(
                    match_id=feed.match_id,
                    team_id=view,
                    content=msgspec.json.encode(content).decode(),
                    computed_at=now,
                    expires_at=now // 1000 + ttl,
                )
            )

    async def _become_owner(self, live_match: LiveMatch, match_id: str, now: int) -> None:
        """Take the match record over from the instance that processed the match before."""
        record = await self.repositories.matches.get(match_id)
        if record is not None and record.version == live_match.version:
            saved = await self.repositories.matches.save(
                replace(record, owner=self.owner, last_updated_at=now)
            )
            if saved is not None:
                live_match.version = saved.version
                self.ball_logs.change_version(match_id, record.version, saved.version)

    async def _on_delivered(self, match_id: str, update: DisplayUpdate) -> None:
        """Store the state hashes of an update that all devices have."""
        self.metrics.record_delivery(match_id, update.timestamp)
        now = self.clock.milliseconds()
        for view, content in update.contents.items():
            await self.repositories.hashes.put(
                StateHash(
                    match_id=match_id, team_id=view, hash=content_hash(content), updated_at=now
                )
            )


def event_alerts(event: KeyEvent | None, milestone: KeyEvent | None) -> dict[AlertChoice, Alert]:
    """Build the alerts of an event and of a milestone, for each choice that includes them."""
    candidates = {
        AlertChoice.ALL: event,
        AlertChoice.MILESTONES: milestone,
        AlertChoice.RESULT: event,
    }
    return {
        choice: _event_alert(candidate)
        for choice, candidate in candidates.items()
        if candidate is not None and choice.includes(candidate.kind)
    }


def _event_alert(event: KeyEvent) -> Alert:
    return Alert(sanitize_text(event_title(event)), sanitize_text(event_sentence(event), 300))


def is_same_poll(before: MatchFeed | None, now: MatchFeed) -> bool:
    """Return whether two polls differ only in the time of their response."""
    return (
        before is not None and msgspec.structs.replace(before, received_at=now.received_at) == now
    )


def _scores(feed: MatchFeed) -> dict[str, Any]:
    return {
        str(innings.number): {
            "teamId": innings.team_id,
            "runs": innings.runs,
            "wickets": innings.wickets,
            "overs": str(innings.overs),
        }
        for innings in feed.innings
    }
