"""What must never be written down: tokens, codes, session ids, keys.

Not in a log, an audit item, a table, a file or an error.
"""

import io
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest

from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.settings import Settings
from tally.sim.fault_injection import InjectedFault
from tally.sim.oidc.flaws import TokenFlaw
from tally.sim.strava.core import Consent
from tests.collect.conftest import TABLES, StoreTarget
from tests.collect.server_harness import (
    ADMIN,
    VERIFY,
    ApiResponse,
    Browser,
    CollectServer,
    open_server,
)


@pytest.fixture
def log(log_text: object) -> io.StringIO:
    """All that is logged, at the most talkative level; the usual configuration comes back afterwards."""
    assert log_text
    stream = io.StringIO()
    logs.configure(
        Settings(log_format="json", log_level="debug", access_log=True), SystemClock(), stream
    )
    return stream


def parameters(url: str | None) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url or "").query).items()}


class Eavesdropper:
    """Goes the way of a browser by hand, and remembers every secret that comes by."""

    def __init__(self, server: CollectServer) -> None:
        self.server = server
        self.browser: Browser = server.browser()
        self.secrets: set[str] = set()
        self.states: set[str] = set()
        self.answers: list[ApiResponse] = []

    async def go(self, url: str, base: str = "") -> ApiResponse:
        answer = await self.browser.get(urljoin(base, url) if base else url)
        told = parameters(answer.header("location"))
        self.secrets |= {told[name] for name in ("code", "nonce") if name in told}
        self.states |= {told[name] for name in ("state",) if name in told}
        self.secrets |= {value for jar in self.browser.jar.values() for value in jar.values()}
        self.answers.append(answer)
        return answer

    async def sign_in(self, name: str) -> None:
        begun = await self.go("/auth/login")
        agreed = await self.go(f"{begun.header('location')}&login_hint={name}")
        await self.go(agreed.header("location") or "", self.server.oidc.url)

    async def link(self, athlete_id: int) -> None:
        self.server.strava.auto_approve = Consent(athlete_id)
        begun = await self.go("/strava/connect")
        agreed = await self.go(begun.header("location") or "")
        await self.go(agreed.header("location") or "", self.server.strava.url)

    def look_around(self) -> None:
        """Note what the outside systems have given out by now."""
        strava, issuer = self.server.strava, self.server.oidc
        self.secrets |= {
            *strava.authorizations._access,
            *strava.authorizations._refresh,
            *issuer.grants._refresh_tokens,
        }
        self.secrets |= {
            strava.application.client_secret,
            issuer.clients["tally-collect"].secret or "",
            ADMIN,
            VERIFY,
        }
        self.secrets |= {
            (self.server.application.settings.data_dir / "collect.key").read_text().strip()
        }


async def a_life(server: CollectServer, eve: Eavesdropper) -> int:
    """Sign-in, link, mint, failures, a refresh, refused sign-ins, an unlinking; and the athlete's id."""
    athlete_id = server.strava.add_athlete("Xenia").id
    await eve.sign_in("Xenia")
    await eve.link(athlete_id)
    goal = {"modelId": "fox", "sport": "RIDE", "metric": "DISTANCE_METERS", "totalTarget": 12_000}
    assert (await eve.browser.send("POST", "/milestones", goal)).status == 201
    eve.look_around()
    server.strava.faults.add(InjectedFault(path="/api/v3/activities", status=400, body="{}"))
    server.strava.record(athlete_id, "Ride", 9000)
    await server.process_inbox()
    server.skip_time(6 * 3600)
    await server.process_inbox()
    server.strava.record(athlete_id, "Ride", 1)
    await server.process_inbox()
    eve.look_around()
    stranger = Eavesdropper(server)
    server.oidc.flaws.append(TokenFlaw.WRONG_NONCE)
    await stranger.sign_in("Mallory")
    await stranger.go("/auth/callback?code=a-made-up-code&state=a-made-up-state")
    await stranger.go(
        f"/webhooks/strava?hub.mode=subscribe&hub.verify_token={VERIFY}x&hub.challenge=c"
    )
    eve.secrets |= stranger.secrets | {"a-made-up-code"}
    eve.states |= stranger.states | {"a-made-up-state"}
    eve.answers += stranger.answers
    return athlete_id


def of_files(folder: Path) -> bytes:
    """The database, where it is one of files; the keys beside it are where keys belong."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.name.startswith("store"))


async def test_no_secret_is_written_down_anywhere(
    store_target: StoreTarget, log: io.StringIO
) -> None:
    """After a whole life with its failures, at the level debug: every secret is looked for everywhere."""
    folder, chosen = await store_target.new_location()
    async with open_server(folder, access_log=True, **chosen) as server:
        eve = Eavesdropper(server)
        await a_life(server, eve)
        await server.collect.audit.flush()
        items: list[Any] = [item for table in TABLES for item in await server.scan_table(table)]
        audit = await server.browser().send(
            "GET", "/admin/audit?event=AUTH_REGISTERED", headers=bearer()
        )
        metrics = await server.browser().get(f"{server.url.removesuffix('/collect')}/metrics")
        assert (await eve.browser.send("DELETE", "/account")).status == 204
        eve.look_around()
    bodies = b"".join(answer.body for answer in (*eve.answers, audit, metrics)).decode()
    lines = log.getvalue()
    assert "Milestone advanced" in lines
    assert "Request completed" in lines
    assert '"level":"debug"' in lines
    secrets = {secret for secret in eve.secrets if secret}
    assert len(secrets) >= 14
    assert all(len(secret) > 10 for secret in secrets)
    places = {
        "log": lines,
        "answers": bodies,
        "tables": str(items),
        "files": of_files(folder).decode(errors="replace"),
    }
    for name, text in places.items():
        assert [secret for secret in secrets if secret in text] == [], name
        assert "eyJ" not in text, f"a token in the {name}"
    # A state is in the table for ten minutes, and worth nothing outside the browser that began;
    # logs are kept for longer.
    assert len(eve.states) >= 4
    assert [state for state in eve.states if state in lines + bodies] == []


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {ADMIN}"}
