"""The SportMonks gateway under errors: retries, time-outs, circuit breaker, quota, secrecy."""

import asyncio
import io
import traceback
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tally.cricket.model.records import League
from tally.errors import RateLimited, TallyError, Unavailable
from tally.kit import logs
from tally.kit.breaker import BreakerState
from tally.settings import Secret
from tally.sim.fault_injection import InjectedFault
from tally.sim.sportmonks.core import API_TOKEN
from tally.sim.sportmonks.cricsheet import bundled_match
from tally.sim.sportmonks.playback import Garble
from tests.cricket.sportmonks_harness import LIVESCORES, SportMonksHarness, open_sportmonks
from tests.log_capture import captured_log
from tests.sim.match_files import HOME, build_match, delivery, innings


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Capture the log at the lowest level."""
    with captured_log("debug") as stream:
        yield stream


async def expect_error(
    scores: SportMonksHarness, kind: type[TallyError] = Unavailable
) -> TallyError:
    """Expect a poll to fail; neither the error nor its causes contain the token."""
    with pytest.raises(kind) as caught:
        await scores.run_with_clock(scores.gateway.live())
    assert API_TOKEN not in "".join(traceback.format_exception(caught.value))
    return caught.value


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(path=LIVESCORES, status=503, times=2),
        InjectedFault(path=LIVESCORES, status=500, times=1),
        InjectedFault(path=LIVESCORES, drop="before", times=2),
        InjectedFault(path=LIVESCORES, drop="after", times=1),
        InjectedFault(path=LIVESCORES, status=200, body='{"data": [', times=1),
        InjectedFault(
            path=LIVESCORES, status=200, body="<html>busy</html>", content_type="text/html", times=2
        ),
    ],
)
async def test_transient_errors_are_retried(fault: InjectedFault) -> None:
    async with open_sportmonks(bundled_match()) as scores:
        (match,) = scores.sportmonks.playbacks.values()
        match.deliver(3)
        scores.sportmonks.faults.add(fault)
        poll = await scores.run_with_clock(scores.gateway.live())
        assert [feed.status_text for feed in poll.feeds] == ["1st Innings"]


async def test_the_circuit_breaker_opens_and_closes() -> None:
    """After five failures nothing is sent for 30 s; then one request probes the service."""
    async with open_sportmonks(bundled_match()) as scores:
        (match,) = scores.sportmonks.playbacks.values()
        match.deliver(3)
        scores.sportmonks.faults.add(InjectedFault(path=LIVESCORES, status=503, times=None))
        await expect_error(scores)
        await expect_error(scores)
        assert (scores.client.breaker.state, scores.polls) == (BreakerState.OPEN, 5)
        error = await expect_error(scores)
        assert "circuit breaker is open" in str(error)
        assert scores.polls == 5
        scores.sportmonks.faults.clear()
        await scores.clock.advance(31)
        assert len((await scores.gateway.live()).feeds) == 1
        assert scores.client.breaker.state is BreakerState.CLOSED


async def test_a_slow_response_times_out() -> None:
    """Each attempt has a time-out; the simulator's clock stands still, so it never responds."""
    async with open_sportmonks(bundled_match(), timeout=0.2, attempts=1) as scores:
        scores.sportmonks.faults.add(InjectedFault(path=LIVESCORES, delay=10**6, times=1))
        with pytest.raises(Unavailable, match="is unreachable"):
            await scores.gateway.live()
        assert (await scores.gateway.live()).feeds == ()
        await scores.clock.advance(10**6)


@pytest.mark.parametrize(
    "garble",
    ["no_id", "no_teams", "text_for_numbers", "text_for_a_list", "not_an_object", "bad_ball"],
)
async def test_a_malformed_match_is_logged_and_skipped(garble: Garble, log: io.StringIO) -> None:
    async with open_sportmonks(bundled_match(1), bundled_match(2), bundled_match(3)) as scores:
        for match in scores.sportmonks.playbacks.values():
            match.deliver(5)
        scores.sportmonks.playback(2).garble = garble
        poll = await scores.gateway.live()
        assert [feed.match_id for feed in poll.feeds] == ["1", "3"]
        assert {"1", "3"} <= poll.match_ids <= {"1", "2", "3"}
        lines = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
        assert "payload_skipped" in {line["action"] for line in lines}
        assert scores.client.breaker.state is BreakerState.CLOSED


async def test_a_malformed_match_counts_as_live() -> None:
    """It must not look as if it had left the live scores."""
    async with open_sportmonks(bundled_match(1), bundled_match(2)) as scores:
        for match in scores.sportmonks.playbacks.values():
            match.deliver(5)
        scores.sportmonks.playback(2).garble = "text_for_a_list"
        poll = await scores.gateway.live()
        assert [feed.match_id for feed in poll.feeds] == ["1"]
        assert poll.match_ids == {"1", "2"}


async def test_retry_after_is_respected() -> None:
    """Nothing is sent until the time in Retry-After has passed."""
    async with open_sportmonks(bundled_match()) as scores:
        scores.sportmonks.limits.hourly = 2
        scores.sportmonks.limits.reset()
        for _ in range(2):
            await scores.gateway.live()
        error = await expect_error(scores, RateLimited)
        assert isinstance(error, RateLimited)
        assert 3000 < error.retry_after <= 3600
        polls = scores.polls
        await expect_error(scores, RateLimited)
        assert scores.polls == polls
        assert await scores.gateway.leagues() != []
        await scores.clock.advance(3600)
        assert (await scores.gateway.live()).feeds == ()


async def test_the_hourly_quota_is_respected() -> None:
    """It counts per resource and hour, from the first request."""
    async with open_sportmonks(bundled_match(), hourly=3) as scores:
        for _ in range(3):
            await scores.gateway.live()
        await scores.clock.advance(600)
        error = await expect_error(scores, RateLimited)
        assert isinstance(error, RateLimited)
        assert error.retry_after == pytest.approx(3005, abs=1)
        assert scores.polls == 3
        await scores.gateway.teams()
        await scores.clock.advance(3006)
        assert (await scores.gateway.live()).feeds == ()


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_rejected_token_is_not_retried(status: int) -> None:
    async with open_sportmonks(bundled_match()) as scores:
        scores.sportmonks.faults.add(InjectedFault(path=LIVESCORES, status=status, times=None))
        errors = [await expect_error(scores) for _ in range(8)]
        assert {error.code for error in errors} == {"sportmonks_refused"}
        assert scores.polls == 8
        assert scores.client.breaker.state is BreakerState.CLOSED


async def test_a_list_that_does_not_exist_is_an_outage() -> None:
    """The poller handles outages; it continues with replays and waits."""
    async with open_sportmonks(bundled_match()) as scores:
        scores.sportmonks.faults.add(InjectedFault(path=LIVESCORES, status=404, times=1))
        with pytest.raises(Unavailable, match="404"):
            await scores.gateway.live()


async def test_without_a_token_nothing_is_sent() -> None:
    async with open_sportmonks(bundled_match(), token=None) as scores:
        with pytest.raises(Unavailable, match="not configured"):
            await scores.run_with_clock(scores.gateway.live())
        assert scores.polls == 0


async def test_the_token_is_in_no_log_line_and_no_error(log: io.StringIO) -> None:
    """For every failure and every way to log it."""
    async with open_sportmonks(bundled_match()) as scores:
        errors: list[TallyError] = []
        for fault in (
            InjectedFault(path="/", status=403),
            InjectedFault(path="/", drop="before", times=3),
            InjectedFault(path="/", status=200, body="x", times=3),
        ):
            scores.sportmonks.faults.add(fault)
            errors.append(await expect_error(scores))
        wrong = Secret("another-token-that-nobody-may-see")
        async with open_sportmonks(bundled_match(), token=wrong) as others:
            with pytest.raises(Unavailable) as caught:
                await others.gateway.live()
            errors.append(caught.value)
        for error in errors:
            logs.logger().error("Poll failed", action="poll", error=error, exc_info=error)
    written = log.getvalue()
    assert written.count("Poll failed") == 4
    assert API_TOKEN not in written
    assert wrong.reveal() not in written


async def test_fixtures_are_paginated_with_their_feeds() -> None:
    async with open_sportmonks(
        bundled_match(1), build_match(innings(HOME, [delivery(1)]))
    ) as scores:
        schedule = scores.sportmonks.schedule(250, league_name="Long League", apart=3600)
        leagues = await scores.gateway.leagues()
        assert sorted(league.name for league in leagues) == [
            "Lantern League",
            "Long League",
            "T20 friendlies",
        ]
        wanted = [league for league in leagues if league.name != "T20 friendlies"]
        scores.sportmonks.playback(1).deliver(8)
        pages = [page async for page in scores.gateway.fixtures(wanted, "2025-12-31", "2026-01-31")]
        assert [len(page) for page in pages] == [100, 100, 51]
        found = {fixture.match_id: (fixture, feed) for page in pages for fixture, feed in page}
        assert found.keys() == {"1", *map(str, schedule)}
        fixture, feed = found["1"]
        assert (fixture.league_code, fixture.status, fixture.start_time) == (
            "LL",
            feed.status,
            feed.starts_at,
        )
        assert (feed.innings[0].runs, feed.balls, feed.teams[0].name) == (
            14,
            None,
            "Harbour Herons",
        )
        assert fixture.team_ids == tuple(side.team_id for side in feed.teams)
        live = await scores.feed_of(scores.sportmonks.playback(1))
        assert (feed.innings, feed.toss) == (
            live.innings,
            live.toss,
        )  # the schedule contains the same data as the live scores
        few = [page async for page in scores.gateway.fixtures(wanted, "2026-01-02", "2026-01-02")]
        assert [len(page) for page in few] == [24]
        assert [
            page async for page in scores.gateway.fixtures([], "2026-01-01", "2026-01-31")
        ] == []


async def test_teams_and_seasons_are_translated() -> None:
    async with open_sportmonks(bundled_match(1)) as scores:
        (league,) = await scores.gateway.leagues()
        assert (league.name, league.code, league.active) == ("Lantern League", "LL", True)
        teams = await scores.gateway.teams()
        assert {(team.name, team.code) for team in teams} == {
            ("Harbour Herons", "HH"),
            ("Meadow Hares", "MH"),
        }
        sides = await scores.gateway.season_teams(league)
        assert {(side.team_id, side.season_id, side.league_id) for side in sides} == {
            (team.team_id, league.season_id, league.league_id) for team in teams
        }
        gone: dict[str, Any] = {"league_id": "5", "name": "Gone", "code": "G", "updated_at": 0}
        assert await scores.gateway.season_teams(League(**gone, season_id="6")) == []
        assert await scores.gateway.season_teams(League(**gone)) == []


async def test_concurrent_requests() -> None:
    async with open_sportmonks(bundled_match(1)) as scores:
        scores.sportmonks.playback(1).deliver(9)
        polls = await asyncio.gather(*(scores.gateway.live() for _ in range(20)))
        assert {len(poll.feeds) for poll in polls} == {1}
