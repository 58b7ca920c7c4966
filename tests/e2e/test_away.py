"""SportMonks is down, slow, talks nonsense or has had enough of us: people see the last known scores, and that they are old."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tally.kit.clock import ManualClock
from tally.sim.fault_injection import InjectedFault
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.sportmonks.cricsheet import BUNDLED_MATCH_ID, bundled_match
from tests.e2e.stadium import Stadium, Visitor, open_stadium, served

LIVESCORES = "/api/v2.0/livescores"
PATH = f"/matches/{BUNDLED_MATCH_ID}"


@asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[tuple[Stadium, Visitor]]:
    """A match after eight balls, and somebody who watches it."""
    # Tokens are checked by the server's clock, which the issuer does not share: these hold for long
    # enough.
    async with CognitoSimulator(ManualClock()).serving() as cognito:
        how: dict[str, Any] = {"cricket_sportmonks_timeout": 1}
        async with open_stadium(directory, bundled_match(), cognito=cognito, **how) as stadium:
            await stadium.sync()
            stadium.sportmonks.broadcast(BUNDLED_MATCH_ID).deliver(8)
            await stadium.poll()
            async with served(stadium.parts, cognito.token_for("ana", lifetime=10**6)) as ana:
                yield stadium, ana


async def expect_shown(ana: Visitor, score: str, *, is_stale: bool) -> None:
    """The match, the list of live ones and the display all say the same."""
    match, live, display = (
        await ana.get(PATH),
        await ana.get("/matches/live"),
        await ana.get(f"{PATH}/display"),
    )
    assert [team["scores"] for team in match["teams"]] == [[score], []]
    assert [each["matchId"] for each in live["matches"]] == [str(BUNDLED_MATCH_ID)]
    assert (match["isStale"], live["matches"][0]["isStale"], display["isStale"]) == (
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
    ids=["down", "dropping", "slow", "malformed", "rate-limited", "refusing"],
)
async def test_the_last_known_scores_are_shown_and_marked_until_it_is_back(
    fault: InjectedFault, tmp_path: Path
) -> None:
    async with watched(tmp_path) as (stadium, ana):
        await expect_shown(ana, "14/0 (1.1)", is_stale=False)
        stadium.sportmonks.faults.add(fault)
        await stadium.poll(25)
        await stadium.clock.advance(6)
        stadium.sportmonks.broadcast(BUNDLED_MATCH_ID).deliver(6)
        await expect_shown(ana, "14/0 (1.1)", is_stale=True)
        stadium.sportmonks.faults.clear()
        await stadium.poll(200)
        await expect_shown(ana, "24/1 (2.1)", is_stale=False)


async def test_a_match_that_cannot_be_read_goes_stale_alone(tmp_path: Path) -> None:
    """The others go on, and it is not taken for one that has ended."""
    async with watched(tmp_path) as (stadium, ana):
        other = stadium.sportmonks.add(bundled_match(7))
        other.deliver(3)
        await stadium.sync()
        await stadium.poll()
        stadium.sportmonks.broadcast(BUNDLED_MATCH_ID).garble = "text_for_a_list"
        for _ in range(4):
            other.deliver()
            await stadium.poll(12)
        bad, good = await ana.get(PATH), await ana.get("/matches/7")
        assert (bad["isLive"], bad["isStale"], bad["teams"][0]["scores"]) == (
            True,
            True,
            ["14/0 (1.1)"],
        )
        assert (good["isLive"], good["isStale"], good["teams"][0]["scores"]) == (
            True,
            False,
            ["13/0 (1.1)"],
        )
        stadium.sportmonks.broadcast(BUNDLED_MATCH_ID).garble = None
        await stadium.poll()
        assert not (await ana.get(PATH))["isStale"]
