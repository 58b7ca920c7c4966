"""Collect over HTTP: webhooks at a steady rate while the worker keeps up, and what a recompute costs.

The server is a real `tally serve` with its worker, and Strava a real `tally sim strava`, each in a
process of its own; this process makes the load. Goals: webhooks answered with p99 under 50 ms at
200 events a second, while what they tell is applied as fast as it comes.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pyreqwest.client import Client, ClientBuilder

from bench.collect_raw import RawEvents
from bench.collect_world import Person, World
from bench.load import at_full_speed, at_rate
from bench.programs import Program, start_program
from bench.rounds import Line, TimedRun, measure_alternately
from tally.collect.repository.table import INBOX_SHARDS
from tally.collect.wiring import REPOSITORIES
from tally.sim.strava.core import OAuthApplication
from tally.store.sqlite import SqliteEngine, open_sqlite

RATE = 200
SECONDS = 8
_PEOPLE = 300
_PAST = 100
_CLIENTS = 8
_WARM_UP = 300
_FULL_SPEED = 2_000
_MAX_SECONDS = 0.05
# By then, what came last must have been applied: the worker looks twice a second.
_MAX_LAG = 2.0
_SECTION = f"collect over HTTP, durable, {_PEOPLE} people with {_PAST} workouts each"


@dataclass(frozen=True, slots=True)
class Club:
    """A server and its Strava."""

    server: Program
    strava: Program
    client: Client
    store: SqliteEngine

    async def tell(self, body: bytes) -> None:
        """Deliver a webhook."""
        request = self.client.post(f"{self.server.url}/collect/webhooks/strava").header(
            "Content-Type", "application/json"
        )
        response = await request.body_bytes(body).build().send()
        if response.status != 200:
            raise AssertionError(f"a webhook was answered with {response.status}")

    async def recompute(self, person: Person) -> None:
        url = f"{self.server.url}/collect/milestones/{person.milestone_id}/recompute"
        headers = {"Cookie": f"cc_session={person.session_id}", "X-Requested-With": "bench"}
        response = await self.client.post(url).headers(headers).build().send()
        if response.status != 200:
            raise AssertionError(f"a recompute was answered with {response.status}")
        await response.bytes()

    async def figures(self) -> dict[str, float]:
        """What the server tells of events, by the name of the figure."""
        response = await self.client.get(f"{self.server.url}/metrics").build().send()
        lines = [
            line
            for line in (await response.text()).splitlines()
            if line.startswith("tally_collect_event")
        ]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    async def waiting(self) -> int:
        """How many events are in the inbox: looked up in the store, which costs the server nothing."""
        return sum([await RawEvents.waiting(self.store, shard) for shard in range(INBOX_SHARDS)])

    async def until_applied(self) -> None:
        """Wait until no event is left in the inbox."""
        end = time.monotonic() + 120
        while await self.waiting():
            if time.monotonic() > end:
                raise AssertionError("the worker does not get anywhere")
            await asyncio.sleep(0.02)


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[Club]:
    """The club of a world, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as made:
        folder, application = Path(made) / "served", OAuthApplication()
        async with open_sqlite(folder) as engine:
            for table in dict.fromkeys(
                table for repository in REPOSITORIES for table in repository.tables
            ):
                await engine.ensure_table(table)
            await world.settle(engine, folder)
            state = Path(made) / "strava.json"
            state.write_bytes(world.strava())
            async with start_program(
                "sim", "strava", "--port", "0", "--unlimited", "--state", str(state), environment={}
            ) as strava:
                environment = {
                    "TALLY_DATA_DIR": str(folder),
                    "TALLY_LOG_FORMAT": "json",
                    "TALLY_COLLECT_STRAVA_URL": strava.url,
                    "TALLY_COLLECT_STRAVA_CLIENT_ID": str(application.client_id),
                    "TALLY_COLLECT_STRAVA_CLIENT_SECRET": application.client_secret,
                }
                async with (
                    start_program("serve", "--port", "0", environment=environment) as server,
                    ClientBuilder().max_connections(256).build() as client,
                ):
                    yield Club(server, strava, client, engine)


async def events(seconds: int = SECONDS) -> AsyncIterator[Line]:
    """Webhooks come in at the rate to hold, and then as fast as they can be told."""
    world = World([_PAST] * _PEOPLE, _WARM_UP + RATE * seconds + _FULL_SPEED)
    async with opened(world) as club:
        await at_rate(club.tell, world.events(_WARM_UP), RATE)
        await club.until_applied()
        with tempfile.TemporaryDirectory(prefix="tally-bench-") as made:
            async with RawEvents.opened(Path(made)) as raw:
                yield await _held(club, world, raw, seconds)
                yield await _full_speed(club, world, raw)


async def _held(club: Club, world: World, raw: RawEvents, seconds: int) -> Line:
    count = RATE * seconds
    before, used, theirs = (
        await club.figures(),
        club.server.cpu_seconds(),
        club.strava.cpu_seconds(),
    )
    ours = await at_rate(club.tell, world.events(count), RATE)
    behind, begun = await club.waiting(), time.monotonic()
    await club.until_applied()
    caught_up = time.monotonic() - begun
    used, theirs = club.server.cpu_seconds() - used, club.strava.cpu_seconds() - theirs
    lag = Lag(before, await club.figures())
    peer = await at_rate(raw.receive, raw.numbers(count), RATE)
    is_held = ours.meets(RATE, _MAX_SECONDS) and caught_up < _MAX_LAG
    note = (
        f"{ours.describe()}; lag {lag}; {behind} waiting when the last of {count} was told, {caught_up:.2f} s later none;"
        f" {used / count * 1e3:.2f} ms of processor an event, {theirs / count * 1e3:.2f} ms of Strava's; raw: {peer.describe()}"
    )
    mine, other = ours.quantile(0.5) * 1e6, peer.quantile(0.5) * 1e6
    goal = f"{RATE}/s, p99 < 50 ms, worker keeps up"
    return Line(
        _SECTION,
        f"{RATE} webhooks a second",
        mine,
        "raw put",
        other,
        mine / other,
        goal,
        is_held,
        note,
    )


async def _full_speed(club: Club, world: World, raw: RawEvents) -> Line:
    begun, used = time.perf_counter(), club.server.cpu_seconds()
    told = await at_full_speed(club.tell, world.events(_FULL_SPEED), _CLIENTS)
    await club.until_applied()
    mine = (time.perf_counter() - begun) / _FULL_SPEED * 1e6
    used = (club.server.cpu_seconds() - used) / _FULL_SPEED * 1e3
    peer = await at_full_speed(raw.whole, raw.numbers(_FULL_SPEED), 16)
    theirs = 1e6 / peer.rate
    note = (
        f"{1e6 / mine:,.0f} events a second told and applied; webhooks {told.describe()};"
        f" {used:.2f} ms of processor an event; raw writes of an event {peer.describe()}"
    )
    what = "told and applied as fast as it goes"
    return Line(_SECTION, what, mine, "raw writes of an event", theirs, mine / theirs, note=note)


@dataclass(frozen=True, slots=True)
class Lag:
    """How long events waited from their receipt until they were applied, between two looks at the figures."""

    before: dict[str, float]
    after: dict[str, float]

    def __str__(self) -> str:
        total = self._grown("_sum") / self._grown("_count")
        return f"{total:.2f} s on average, 99 % within {self._quantile(0.99):g} s"

    def _grown(self, ending: str) -> float:
        name = f"tally_collect_event_lag_seconds{ending}"
        return self.after[name] - self.before.get(name, 0.0)

    def _quantile(self, share: float) -> float:
        edges = [
            name.split('"')[1]
            for name in self.after
            if name.startswith("tally_collect_event_lag_seconds_bucket")
        ]
        counts = [self._grown(f'_bucket{{le="{edge}"}}') for edge in edges]
        wanted = share * self._grown("_count")
        return next(
            float(edge) for edge, count in zip(edges, counts, strict=True) if count >= wanted
        )


async def recomputes(rounds: int) -> AsyncIterator[Line]:
    """What it costs to measure again, by how many workouts there are to look at."""
    world = World([100, 1_000, 3_000], 0)
    async with opened(world) as club:
        for person, past in zip(world.people, world.pasts, strict=True):
            ours, peer = _recompute(club, person), _read(club, person)
            mine, theirs, ratio = await measure_alternately(ours, peer, rounds)
            used = club.server.cpu_seconds()
            asked = await ours()
            used = (club.server.cpu_seconds() - used) / asked * 1e3
            note = f"{used:.1f} ms of processor, {mine / past:.1f} µs a workout"
            yield Line(
                "recompute over HTTP",
                f"{past:,} workouts",
                mine,
                "raw query of them",
                theirs,
                ratio,
                note=note,
            )


def _recompute(club: Club, person: Person) -> TimedRun:
    async def run() -> int:
        for _ in range(20):
            await club.recompute(person)
        return 20

    return run


def _read(club: Club, person: Person) -> TimedRun:
    async def run() -> int:
        for _ in range(20):
            await RawEvents.read_past(club.store, person)
        return 20

    return run
