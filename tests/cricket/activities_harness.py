"""A match with followers, their phones, a push service on real sockets, and any number of instances that see to it.

The phones here are as simple as can be: they hand in tokens when a test says so. What was pushed to
them is in the record of the simulated service.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import (
    NEUTRAL,
    ActivityStatus,
    Fixture,
    Follow,
    LiveActivity,
    UserDevice,
    format_start_time,
)
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.devices import CRICKET_DEVICES, UserDeviceRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.repository.follows import CRICKET_MATCH_FOLLOWS, FollowRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.repositories import REPOSITORIES
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.errors import Invalid, NotFound
from tally.kit.clock import ManualClock
from tally.sim.apns.devices import TokenKind
from tally.store.api import BatchWrite, Engine
from tally.store.catalogue import owned_tables
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.cricket import made_up
from tests.cricket.activities_instance import Instance, make_instance
from tests.cricket.apns_harness import Apple, apple_nearby

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Phone:
    """A device of a person: its tokens, and where it is known."""

    user_id: str
    device_id: str
    start_token: str
    device_token: str


@dataclass(slots=True)
class Stadium:
    """Everything that a test of the life of Live Activities stands on."""

    engine: Engine
    clock: ManualClock
    apple: Apple
    contents: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return Store(self.engine, self.clock)

    @property
    def activities(self) -> LiveActivityRepository:
        return LiveActivityRepository(self.store)

    @property
    def matches(self) -> ActiveMatchRepository:
        return ActiveMatchRepository(self.store)

    @property
    def fixtures(self) -> FixtureRepository:
        return FixtureRepository(self.store)

    @property
    def follows(self) -> FollowRepository:
        return FollowRepository(self.store)

    @property
    def devices(self) -> UserDeviceRepository:
        return UserDeviceRepository(self.store)

    @property
    def subscriptions(self) -> ActivitySubscriptionRepository:
        return ActivitySubscriptionRepository(self.store)

    async def show(self, match_id: str, view: str) -> Mapping[str, Any]:
        """The display state, as short as can be: a test changes `contents`."""
        if match_id not in self.contents:
            raise NotFound("There is no such match", code="match_not_found")
        if view not in {NEUTRAL, "1", "2"}:
            raise Invalid("This team does not play in the match", code="team_not_in_match")
        return {"view": view, **self.contents[match_id]}

    def instance(self, owner: str = "instance-1", *, uses_channels: bool = False) -> Instance:
        """Another program on the same store."""
        return make_instance(
            Store(self.engine, self.clock),
            self.apple.gateway,
            self.show,
            owner,
            uses_channels=uses_channels,
        )

    async def match(self, **changes: Any) -> Fixture:
        """A match that is live, unless the changes say otherwise."""
        now = self.clock.milliseconds()
        wanted = {
            "start_time": format_start_time(now),
            "status": MatchStatus.IN_PLAY,
            "live_updated_at": now,
        } | changes
        fixture = made_up.fixture(**wanted)
        await self.fixtures.write_batch([fixture])
        teams = [
            {"id": "1", "name": "Lions", "code": "LIO"},
            {"id": "2", "name": "Tigers", "code": "TIG"},
        ]
        self.contents[fixture.match_id] = {
            "matchId": fixture.match_id,
            "teams": teams,
            "lines": {"lockScreen": "LIO 0/0"},
            "timestamp": 0,
        }
        return fixture

    def score(self, fixture: Fixture, line: str) -> None:
        """Something has happened."""
        self.contents[fixture.match_id] = self.contents[fixture.match_id] | {
            "lines": {"lockScreen": line}
        }

    async def phone(self, user_id: str, **changes: Any) -> Phone:
        """A registered device that can be reached and started on."""
        device_id = made_up.name("phone")
        self.apple.sim.devices.register(device_id, "stadium")
        start = self.apple.sim.devices.issue(device_id, TokenKind.START)
        token = self.apple.sim.devices.issue(device_id, TokenKind.DEVICE)
        now = self.clock.milliseconds()
        device: UserDevice = made_up.device(
            user_id,
            device_id=device_id,
            device_token=token,
            push_to_start_token=start,
            created_at=now,
            updated_at=now,
            expires_at=now // 1000 + 90 * DAY,
            **changes,
        )
        await self.devices.register(device, is_only_one=False)
        return Phone(user_id, device_id, start, token)

    async def follower(
        self, fixture: Fixture, phones: int = 1, **changes: Any
    ) -> tuple[Follow, list[Phone]]:
        """Somebody who follows the match, with so many phones."""
        now = self.clock.milliseconds()
        wanted = {"created_at": now, "expires_at": now // 1000 + 2 * DAY} | changes
        follow = await self.follows.follow(made_up.follow(fixture.match_id, **wanted))
        return follow, [await self.phone(follow.user_id) for _ in range(phones)]

    async def crowd(self, fixture: Fixture, count: int) -> None:
        """So many followers with a phone each, whose tokens the push service takes without having issued them."""
        self.apple.sim.devices.accepts_any_token = True
        now = self.clock.milliseconds()
        people = [f"user-{number:06}" for number in range(count)]
        follows = [
            {
                "matchId": fixture.match_id,
                "userId": user,
                "teamId": NEUTRAL,
                "createdAt": now,
                "expiresAt": now // 1000 + DAY,
            }
            for user in people
        ]
        phones = [
            {
                "userId": user,
                "deviceToken": f"{number:064x}",
                "deviceId": "phone",
                "platform": "ios",
                "createdAt": now,
                "updatedAt": now,
                "expiresAt": now // 1000 + DAY,
                "pushToStartToken": f"{number:0160x}",
            }
            for number, user in enumerate(people)
        ]
        for start in range(0, count, 25):
            await self.engine.batch_write(
                BatchWrite(CRICKET_MATCH_FOLLOWS, tuple(follows[start : start + 25]))
            )
            await self.engine.batch_write(
                BatchWrite(CRICKET_DEVICES, tuple(phones[start : start + 25]))
            )

    async def shown(self, fixture: Fixture, phone: Phone) -> LiveActivity | None:
        return await self.activities.get(
            fixture.match_id, phone.user_id, phone.device_id, self.clock.milliseconds()
        )

    async def status(self, fixture: Fixture, phone: Phone) -> ActivityStatus | None:
        activity = await self.shown(fixture, phone)
        return None if activity is None else activity.status

    def update_token(self, phone: Phone) -> str:
        """What iOS hands to the app when an activity runs."""
        return self.apple.sim.devices.issue(phone.device_id, TokenKind.UPDATE)

    async def runs(self, instance: Instance, fixture: Fixture, phone: Phone) -> str:
        """The activity was started on the phone, and the app hands in its token."""
        token = self.update_token(phone)
        await instance.activities.register(fixture, phone.user_id, phone.device_id, token, NEUTRAL)
        return token

    async def while_time_passes(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, and let the clock go on until it is done: for what waits in vain."""
        task = asyncio.create_task(work)
        while not task.done():
            await self.clock.advance(0.02)
        await task

    def pushed(self, token: str) -> list[dict[str, Any]]:
        """What was taken for a token, or a channel: the `aps` of each push."""
        return [json.loads(payload)["aps"] for payload in self.apple.sim.log.payloads(token)]

    def events(self, token: str) -> list[str]:
        return [aps["event"] for aps in self.pushed(token)]


@dataclass(frozen=True, slots=True)
class Ground:
    """What stadiums share, since it takes a while to build: the push service, and the time."""

    clock: ManualClock
    apple: Apple


@asynccontextmanager
async def open_ground(directory: Path) -> AsyncIterator[Ground]:
    clock = ManualClock(datetime(2026, 11, 15, 14, tzinfo=UTC))
    async with apple_nearby(directory, clock) as apple:
        yield Ground(clock, apple)


@asynccontextmanager
async def open_stadium(directory: Path, ground: Ground) -> AsyncIterator[Stadium]:
    """A store of its own, and a push service that has forgotten what was before."""
    clock = ground.clock
    ground.apple.sim.log.clear()
    ground.apple.sim.faults.clear()
    ground.apple.sim.devices.accepts_any_token = False
    async with open_sqlite(directory / "store", clock=lambda: clock.time_ns() / 1e9) as engine:
        for repository in REPOSITORIES:
            for table in owned_tables(repository):
                await engine.create_table(table)
        yield Stadium(engine, clock, ground.apple)
