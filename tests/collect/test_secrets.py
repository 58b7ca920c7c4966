"""Tokens, codes, session ids and keys never appear in logs, tables, files or responses."""

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
    CALLBACK,
    VERIFY,
    WEBHOOK_SECRET,
    Browser,
    BrowserResponse,
    CollectServer,
    open_server,
)


@pytest.fixture
def log(log_text: object) -> io.StringIO:
    """Capture the log at debug level."""
    assert log_text
    stream = io.StringIO()
    logs.configure(
        Settings(log_format="json", log_level="debug", access_log=True), SystemClock(), stream
    )
    return stream


def parameters(url: str | None) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url or "").query).items()}


class SecretCollector:
    """Follows the browser flows step by step and collects all secrets."""

    def __init__(self, server: CollectServer) -> None:
        self.server = server
        self.browser: Browser = server.browser()
        self.secrets: set[str] = set()
        self.states: set[str] = set()
        self.responses: list[BrowserResponse] = []

    async def go(self, url: str, base: str = "") -> BrowserResponse:
        response = await self.browser.get(urljoin(base, url) if base else url)
        query = parameters(response.header("location"))
        self.secrets |= {query[name] for name in ("code", "nonce") if name in query}
        self.states |= {query[name] for name in ("state",) if name in query}
        self.secrets |= {value for jar in self.browser.jar.values() for value in jar.values()}
        self.responses.append(response)
        return response

    async def sign_in(self, name: str) -> None:
        begun = await self.go("/auth/login")
        agreed = await self.go(f"{begun.header('location')}&login_hint={name}")
        await self.go(agreed.header("location") or "", self.server.oidc.url)

    async def link(self, athlete_id: int) -> None:
        self.server.strava.auto_approve = Consent(athlete_id)
        begun = await self.go("/strava/connect")
        agreed = await self.go(begun.header("location") or "")
        await self.go(agreed.header("location") or "", self.server.strava.url)

    def collect_issued(self) -> None:
        """Collect the secrets that the simulators have issued."""
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
            WEBHOOK_SECRET,
        }
        self.secrets |= {
            (self.server.application.settings.data_dir / "collect.key").read_text().strip()
        }


async def exercise_flows(server: CollectServer, collector: SecretCollector) -> int:
    """Sign in, link, mint, fail, refresh and reject sign-ins; return the athlete id."""
    athlete_id = server.strava.add_athlete("Xenia").id
    await collector.sign_in("Xenia")
    await collector.link(athlete_id)
    goal = {"modelId": "fox", "sport": "RIDE", "metric": "DISTANCE_METERS", "totalTarget": 12_000}
    assert (await collector.browser.send("POST", "/milestones", goal)).status == 201
    collector.collect_issued()
    server.strava.faults.add(InjectedFault(path="/api/v3/activities", status=400, body="{}"))
    server.strava.record(athlete_id, "Ride", 9000)
    await server.process_inbox()
    server.skip_time(6 * 3600)
    await server.process_inbox()
    server.strava.record(athlete_id, "Ride", 1)
    await server.process_inbox()
    collector.collect_issued()
    stranger = SecretCollector(server)
    server.oidc.flaws.append(TokenFlaw.WRONG_NONCE)
    await stranger.sign_in("Mallory")
    await stranger.go("/auth/callback?code=a-made-up-code&state=a-made-up-state")
    await stranger.go(f"{CALLBACK}?hub.mode=subscribe&hub.verify_token={VERIFY}x&hub.challenge=c")
    collector.secrets |= stranger.secrets | {"a-made-up-code"}
    collector.states |= stranger.states | {"a-made-up-state"}
    collector.responses += stranger.responses
    return athlete_id


def database_files(folder: Path) -> bytes:
    """Return the database files, without the key files."""
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.name.startswith("store"))


async def test_no_secret_is_persisted_or_logged(
    store_target: StoreTarget, log: io.StringIO
) -> None:
    """After all flows and failures, at debug level."""
    folder, settings = await store_target.new_location()
    async with open_server(folder, access_log=True, **settings) as server:
        collector = SecretCollector(server)
        await exercise_flows(server, collector)
        await server.collect.audit.flush()
        items: list[Any] = [item for table in TABLES for item in await server.scan_table(table)]
        audit = await server.browser().send(
            "GET", "/admin/audit?event=AUTH_REGISTERED", headers=bearer()
        )
        metrics = await server.browser().get(f"{server.url.removesuffix('/collect')}/metrics")
        export = await collector.browser.get("/account/export")
        assert export.status == 200
        assert (await collector.browser.send("DELETE", "/account")).status == 202
        await server.process_deletions()
        collector.collect_issued()
    bodies = b"".join(
        response.body for response in (*collector.responses, audit, metrics, export)
    ).decode()
    lines = log.getvalue()
    assert "Milestone advanced" in lines
    assert "Request completed" in lines
    assert '"level":"debug"' in lines
    secrets = {secret for secret in collector.secrets if secret}
    assert len(secrets) >= 14
    assert all(len(secret) > 10 for secret in secrets)
    places = {
        "log": lines,
        "answers": bodies,
        "tables": str(items),
        "files": database_files(folder).decode(errors="replace"),
    }
    for name, text in places.items():
        assert [secret for secret in secrets if secret in text] == [], name
        assert "eyJ" not in text, f"a token in the {name}"
    # States are stored for ten minutes and bound to a browser, but must not be logged.
    assert len(collector.states) >= 4
    assert [state for state in collector.states if state in lines + bodies] == []


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {ADMIN}"}
