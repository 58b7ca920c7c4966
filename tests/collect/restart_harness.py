"""A collect server that restarts on its data, while Strava and the OIDC provider continue."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyreqwest.client import Client, ClientBuilder

from tally.app import build_app, open_application
from tally.kit.clock import ManualClock
from tally.kit.server import serving
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.strava.rate_limits import UNLIMITED, RateLimits
from tally.sim.strava.simulator import StravaSimulator
from tally.sim.strava.webhooks import WebhookSubscription
from tests.collect.server_harness import (
    CALLBACK,
    START,
    SUBSCRIPTION,
    Browser,
    CollectServer,
    make_settings,
    signing_keys,
)


class RestartingServer:
    """The running server; `restart` replaces it."""

    server: CollectServer

    def __init__(
        self,
        folder: Path,
        strava: StravaSimulator,
        issuer: OidcSimulator,
        client: Client,
        changes: Mapping[str, Any],
    ) -> None:
        self._folder = folder
        self._strava = strava
        self._issuer = issuer
        self._client = client
        self._changes = changes
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        settings = make_settings(self._folder, self._strava, self._issuer, **self._changes)
        clock = self._strava.clock
        assert isinstance(clock, ManualClock)
        opened = await self._stack.enter_async_context(open_application(settings, clock))
        application = replace(opened, jobs=())  # tests run the jobs
        url = await self._stack.enter_async_context(
            serving(build_app(application), on_stopping=application.drain)
        )
        self._strava.webhooks.resume(
            WebhookSubscription(SUBSCRIPTION, f"{url}/collect{CALLBACK}", clock.seconds())
        )
        self.server = CollectServer(
            f"{url}/collect", application, clock, self._strava, self._issuer, self._client
        )

    async def stop(self) -> None:
        await self._stack.aclose()
        self._stack = contextlib.AsyncExitStack()

    async def restart(self, browser: Browser) -> None:
        """Stop and start the server; the browser keeps its session."""
        cookies = browser.jar.pop(urlsplit(browser.url).netloc, {})
        await self.stop()
        await self.start()
        browser.url = self.server.url
        browser.jar[urlsplit(browser.url).netloc] = cookies


@contextlib.asynccontextmanager
async def open_restarting_server(
    folder: Path, *, start: datetime = START, **changes: Any
) -> AsyncIterator[RestartingServer]:
    clock = ManualClock(start)
    limits = RateLimits(clock, UNLIMITED, UNLIMITED)
    strava = StravaSimulator(clock, limits=limits, subscription_id=SUBSCRIPTION)
    issuer = OidcSimulator(clock, keys=signing_keys(), auto_approve="Any User")
    async with (
        strava.serving(),
        issuer.serving(),
        ClientBuilder().no_proxy().follow_redirects(False).build() as client,
    ):
        running = RestartingServer(folder, strava, issuer, client, changes)
        await running.start()
        try:
            yield running
        finally:
            await running.stop()
