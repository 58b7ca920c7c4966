"""Starts a store and the APNs simulator, and builds instances of the Live Activity services."""

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
    EndReason,
    Fixture,
    Follow,
    LiveActivity,
    PushTarget,
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
from tests.cricket import factories
from tests.cricket.activities_instance import Instance, make_instance
from tests.cricket.apns_harness import ApnsHarness, open_apns_harness

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Phone:
    """A registered device of a user and its tokens."""

    user_id: str
    device_id: str
    start_token: str
    device_token: str


@dataclass(slots=True)
class ActivitiesHarness:
    """A store, the APNs harness and a clock; starts any number of instances on them."""

    engine: Engine
    clock: ManualClock
    apns: ApnsHarness
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

    async def read_display(self, match_id: str, view: str) -> Mapping[str, Any]:
        """Return the display state of a match; a test changes `contents`."""
        if match_id not in self.contents:
            raise NotFound("Match not found", code="match_not_found")
        if view not in {NEUTRAL, "1", "2"}:
            raise Invalid("This team does not play in the match", code="team_not_in_match")
        return {"view": view, **self.contents[match_id]}

    async def end_with_invalid_token(self, target: PushTarget) -> bool:
        """End an activity as after APNs reported its token as invalid; return whether it ended."""
        now, token = self.clock.milliseconds(), target.update_token
        ended = await self.activities.end(target, EndReason.TOKEN_INVALID, now, only_token=token)
        return ended is not None

    def instance(self, owner: str = "instance-1", *, uses_channels: bool = False) -> Instance:
        """Return a new instance on the same store."""
        return make_instance(
            Store(self.engine, self.clock),
            self.apns.gateway,
            self.read_display,
            owner,
            uses_channels=uses_channels,
        )

    async def match(self, **changes: Any) -> Fixture:
        """Create a match, live by default."""
        now = self.clock.milliseconds()
        values = {
            "start_time": format_start_time(now),
            "status": MatchStatus.IN_PLAY,
            "live_updated_at": now,
        } | changes
        fixture = factories.fixture(**values)
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
        """Change the display state of a match."""
        self.contents[fixture.match_id] = self.contents[fixture.match_id] | {
            "lines": {"lockScreen": line}
        }

    async def phone(self, user_id: str, **changes: Any) -> Phone:
        """Register a device with a push-to-start token."""
        device_id = factories.name("phone")
        self.apns.simulator.devices.register(device_id, "activities")
        start = self.apns.simulator.devices.issue(device_id, TokenKind.START)
        token = self.apns.simulator.devices.issue(device_id, TokenKind.DEVICE)
        now = self.clock.milliseconds()
        device: UserDevice = factories.device(
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
        """Create a follower of the match with this number of phones."""
        now = self.clock.milliseconds()
        values = {"created_at": now, "expires_at": now // 1000 + 2 * DAY} | changes
        follow = await self.follows.follow(factories.follow(fixture.match_id, **values))
        return follow, [await self.phone(follow.user_id) for _ in range(phones)]

    async def crowd(self, fixture: Fixture, count: int) -> None:
        """Create followers with a phone each; the simulator accepts their unissued tokens."""
        self.apns.simulator.devices.accepts_any_token = True
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

    async def activity(self, fixture: Fixture, phone: Phone) -> LiveActivity | None:
        return await self.activities.get(
            fixture.match_id, phone.user_id, phone.device_id, self.clock.milliseconds()
        )

    async def status(self, fixture: Fixture, phone: Phone) -> ActivityStatus | None:
        activity = await self.activity(fixture, phone)
        return None if activity is None else activity.status

    def update_token(self, phone: Phone) -> str:
        """Issue the token that iOS hands to the app when an activity starts."""
        return self.apns.simulator.devices.issue(phone.device_id, TokenKind.UPDATE)

    async def register_activity(self, instance: Instance, fixture: Fixture, phone: Phone) -> str:
        """Register an update token, as the app does when the activity starts."""
        token = self.update_token(phone)
        await instance.activities.register(fixture, phone.user_id, phone.device_id, token, NEUTRAL)
        return token

    async def advance_until_done(self, work: Coroutine[Any, Any, None]) -> None:
        """Advance the clock until the work is done."""
        task = asyncio.create_task(work)
        while not task.done():
            await self.clock.advance(0.02)
        await task

    def pushed(self, token: str) -> list[dict[str, Any]]:
        """Return the `aps` of each push that was accepted for a token or a channel."""
        return [json.loads(payload)["aps"] for payload in self.apns.simulator.log.payloads(token)]

    def events(self, token: str) -> list[str]:
        return [aps["event"] for aps in self.pushed(token)]


@dataclass(frozen=True, slots=True)
class SharedApns:
    """The APNs harness and the clock that all tests share, because it starts slowly."""

    clock: ManualClock
    apns: ApnsHarness

    def reset(self) -> None:
        self.apns.simulator.log.clear()
        self.apns.simulator.faults.clear()
        self.apns.simulator.devices.accepts_any_token = False
        self.apns.simulator.channels.configs.clear()


@asynccontextmanager
async def open_shared_apns(directory: Path) -> AsyncIterator[SharedApns]:
    # In the far future, because an emulator deletes expired items by its own clock.
    clock = ManualClock(datetime(2096, 11, 15, 14, tzinfo=UTC))
    async with open_apns_harness(directory, clock) as apns:
        yield SharedApns(clock, apns)


@asynccontextmanager
async def open_activities_harness(
    directory: Path, shared: SharedApns
) -> AsyncIterator[ActivitiesHarness]:
    """Open a new store; reset the shared simulator."""
    clock = shared.clock
    shared.reset()
    async with open_sqlite(directory / "store", clock=lambda: clock.time_ns() / 1e9) as engine:
        for repository in REPOSITORIES:
            for table in owned_tables(repository):
                await engine.create_table(table)
        yield ActivitiesHarness(engine, clock, shared.apns)
