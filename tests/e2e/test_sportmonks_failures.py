"""While SportMonks fails, clients get the last known scores, marked as stale."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tally.kit.clock import ManualClock
from tally.sim.fault_injection import InjectedFault
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.sportmonks.cricsheet import BUNDLED_MATCH_ID, bundled_match
from tests.e2e.cricket_harness import ApiClient, CricketHarness, open_cricket_harness, serve

LIVESCORES = "/api/v2.0/livescores"
PATH = f"/matches/{BUNDLED_MATCH_ID}"


@asynccontextmanager
async def open_match(directory: Path) -> AsyncIterator[tuple[CricketHarness, ApiClient]]:
    """Open a match after eight balls, and a client that reads it."""
    # The issuer does not share the clock of the server, so the token gets a long lifetime.
    async with CognitoSimulator(ManualClock()).serving() as cognito:
        settings: dict[str, Any] = {"cricket_sportmonks_timeout": 1}
        async with open_cricket_harness(
            directory, bundled_match(), cognito=cognito, **settings
        ) as harness:
            await harness.sync()
            harness.sportmonks.playback(BUNDLED_MATCH_ID).deliver(8)
            await harness.poll()
            async with serve(
                harness.application, cognito.token_for("ana", lifetime=10**6)
            ) as client:
                yield harness, client


async def expect_score(client: ApiClient, score: str, *, is_stale: bool) -> None:
    """Match, live list and display agree."""
    match, live, display = (
        await client.get(PATH),
        await client.get("/matches/live"),
        await client.get(f"{PATH}/display"),
    )
    assert [team["scores"] for team in match["teams"]] == [[score], []]
    assert [item["matchId"] for item in live["items"]] == [str(BUNDLED_MATCH_ID)]
    assert (match["isStale"], live["items"][0]["isStale"], display["isStale"]) == (
        is_stale,
        is_stale,
        is_stale,
    )
    assert display["display"]["teams"][0]["score"] == score.split(" ", maxsplit=1)[0]


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(path=LIVESCORES, status=503, times=None),
        InjectedFault(path=LIVESCORES, drop="before", times=None),
        InjectedFault(path=LIVESCORES, delay=200, times=None),
        InjectedFault(path=LIVESCORES, status=200, body='{"data": [{"id"', times=None),
        InjectedFault(path=LIVESCORES, status=429, times=None),
        InjectedFault(path=LIVESCORES, status=403, times=None),
    ],
    ids=["down", "dropping", "slow", "malformed", "rate-limited", "forbidden"],
)
async def test_the_last_known_scores_are_served_as_stale_until_recovery(
    fault: InjectedFault, tmp_path: Path
) -> None:
    async with open_match(tmp_path) as (harness, client):
        await expect_score(client, "14/0 (1.1)", is_stale=False)
        harness.sportmonks.faults.add(fault)
        await harness.poll(25)
        await harness.clock.advance(6)
        harness.sportmonks.playback(BUNDLED_MATCH_ID).deliver(6)
        await expect_score(client, "14/0 (1.1)", is_stale=True)
        harness.sportmonks.faults.clear()
        await harness.poll(200)
        await expect_score(client, "24/1 (2.1)", is_stale=False)


async def test_only_an_unreadable_match_becomes_stale(tmp_path: Path) -> None:
    """It does not count as ended, and other matches are not affected."""
    async with open_match(tmp_path) as (harness, client):
        other = harness.sportmonks.add(bundled_match(7))
        other.deliver(3)
        await harness.sync()
        await harness.poll()
        harness.sportmonks.playback(BUNDLED_MATCH_ID).garble = "text_for_a_list"
        for _ in range(4):
            other.deliver()
            await harness.poll(12)
        unreadable, readable = await client.get(PATH), await client.get("/matches/7")
        assert (unreadable["isLive"], unreadable["isStale"], unreadable["teams"][0]["scores"]) == (
            True,
            True,
            ["14/0 (1.1)"],
        )
        assert (readable["isLive"], readable["isStale"], readable["teams"][0]["scores"]) == (
            True,
            False,
            ["13/0 (1.1)"],
        )
        harness.sportmonks.playback(BUNDLED_MATCH_ID).garble = None
        await harness.poll()
        assert not (await client.get(PATH))["isStale"]
