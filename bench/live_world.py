"""Live matches with as many followers as wanted: a store full of Live Activities, and one instance that sees to them."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from tally.cricket.model.feed import LivePoll, MatchFeed
from tally.cricket.model.records import NEUTRAL, ActivityStatus, LiveActivity
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.repositories import REPOSITORIES, Repositories
from tally.cricket.service.live.poller import ScorePoller
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import PushGateway
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.translation import translate_match
from tally.cricket.wiring.live import open_live
from tally.cricket.wiring.queries import build_queries, build_replays
from tally.kit.clock import SystemClock
from tally.kit.hub import Hub
from tally.kit.metrics import Metrics
from tally.settings import Settings
from tally.sim.sportmonks.cricsheet import bundled_match
from tally.sim.sportmonks.playback import MatchPlayback
from tally.store.catalogue import owned_tables
from tally.store.sqlite import open_sqlite
from tally.store.store import Store

# Of the match that is shown: some overs in.
BEGUN: Final = 40
AT_ONCE: Final = 1_000
DAY: Final = 86_400


class OnTheAir:
    """Matches that are told of as the score service does, without its network."""

    def __init__(self, count: int) -> None:
        self.clock = SystemClock()
        self.broadcasts = [
            MatchPlayback(bundled_match(900_000 + number), self.clock) for number in range(count)
        ]
        for broadcast in self.broadcasts:
            broadcast.deliver(BEGUN)

    @property
    def match_ids(self) -> list[str]:
        return [str(broadcast.match.id) for broadcast in self.broadcasts]

    def change(self) -> None:
        """One more ball in every match."""
        for broadcast in self.broadcasts:
            broadcast.deliver(1)

    async def live(self) -> LivePoll:
        feeds = tuple(self._feed(broadcast) for broadcast in self.broadcasts)
        return LivePoll(feeds, frozenset(feed.match_id for feed in feeds), 0)

    async def match(self, match_id: str) -> MatchFeed | None:
        return next(
            (self._feed(each) for each in self.broadcasts if str(each.match.id) == match_id), None
        )

    def _feed(self, broadcast: MatchPlayback) -> MatchFeed:
        told = msgspec.json.encode(broadcast.fixture())
        return translate_match(
            msgspec.json.decode(told, type=payloads.SportMonksFixture, strict=False),
            self.clock.milliseconds(),
        )


@dataclass(frozen=True, slots=True)
class Ground:
    """One instance, and what it sees to."""

    air: OnTheAir
    poller: ScorePoller
    workers: MatchWorkers
    tables: Repositories

    async def tell_everyone(self) -> None:
        """A ball is bowled in every match, a poll finds it, and all devices are told."""
        self.air.change()
        await self.poller.run()
        await self.workers.wait_idle()


@asynccontextmanager
async def ground(directory: Path, apns: PushGateway, air: OnTheAir) -> AsyncIterator[Ground]:
    """On a new store, with nobody following yet."""
    clock, metrics = air.clock, Metrics()
    async with open_sqlite(directory) as engine:
        for repository in REPOSITORIES:
            for table in owned_tables(repository):
                await engine.create_table(table)
        tables = Repositories.create(Store(engine, clock))
        queries = build_queries(tables, clock)
        replays = build_replays(tables, queries.feeds, clock)
        hub = Hub(clock, metrics)
        async with open_live(
            tables, queries, replays, air, apns, hub=hub, clock=clock, settings=Settings()
        ) as live:
            yield Ground(air, live.poller, live.workers, tables)


async def fill(
    activities: LiveActivityRepository,
    match_ids: Sequence[str],
    count: int,
    channel_id: str | None = None,
) -> None:
    """As many Live Activities as wanted, spread over the matches."""
    clock = SystemClock()
    now = clock.milliseconds()

    def made(number: int) -> LiveActivity:
        return LiveActivity(
            match_id=match_ids[number % len(match_ids)],
            user_id=f"user-{number:08d}",
            device_id="phone",
            status=ActivityStatus.ACTIVE,
            created_at=now,
            updated_at=now,
            expires_at=now // 1000 + DAY,
            team_id=NEUTRAL,
            update_token=secrets.token_hex(80),
            channel_id=channel_id,
        )

    for first in range(0, count, AT_ONCE):
        await asyncio.gather(
            *(
                activities.create(made(number))
                for number in range(first, min(count, first + AT_ONCE))
            )
        )
