"""`tally collect subscribe` registers, shows and removes the webhook subscription at Strava."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner

from tally.cli import cli
from tally.sim.fault_injection import InjectedFault
from tests.collect.processes import server_environment
from tests.collect.server_harness import WEBHOOK_SECRET, CollectServer, open_server


@pytest.fixture(scope="module")
async def unsubscribed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CollectServer]:
    """A server without a subscription."""
    folder = tmp_path_factory.mktemp("subscribe")
    async with open_server(folder, collect_strava_subscription_id=0) as server:
        server.strava.webhooks.unsubscribe()
        yield server


async def run_subscribe(server: CollectServer, *words: str, **changes: str) -> tuple[int, str]:
    """Run the command beside the server; return its exit code and output."""
    environment = server_environment(server) | {"TALLY_LOG_LEVEL": "error"} | changes
    command = ["collect", "subscribe", *words]
    result = await asyncio.to_thread(CliRunner().invoke, cli, command, env=environment)
    assert WEBHOOK_SECRET not in result.output
    assert server.strava.application.client_secret not in result.output
    return result.exit_code, result.output


async def test_a_subscription_is_registered_shown_and_removed(unsubscribed: CollectServer) -> None:
    """The running server then accepts its events; a repetition changes nothing."""
    server, url = unsubscribed, unsubscribed.url.removesuffix("/collect")
    ann = await server.create_user()
    assert await run_subscribe(server, "--show") == (
        0,
        "Strava has no subscription of this application.\n",
    )
    code, output = await run_subscribe(server, "--url", url)
    subscription = server.strava.webhooks.subscription
    assert subscription is not None
    line = f"Subscription {subscription.id} sends events to {url}/collect/webhooks/strava/***.\n"
    assert (code, output) == (0, line)
    repository = server.collect.worker.repository
    gap = await repository.heartbeat()
    assert gap is not None, "earlier events are lost: all athletes are synced"
    assert subscription.callback_url == f"{url}/collect/webhooks/strava/{WEBHOOK_SECRET}"
    assert await run_subscribe(server, "--url", url) == (0, line)
    assert await run_subscribe(server, "--show") == (0, line)
    assert await repository.heartbeat() == gap
    await server.clock.advance(5)
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1
    code, output = await run_subscribe(server, "--url", "http://127.0.0.1:1")
    assert code == 2
    assert "tally collect subscribe --remove" in output
    code, output = await run_subscribe(server, "--remove")
    assert (code, output) == (0, f"Subscription {subscription.id} removed.\n")
    assert server.strava.webhooks.subscription is None
    code, output = await run_subscribe(server, "--remove")
    assert (code, output) == (2, "Strava has no subscription of this application\n")


async def test_errors_say_what_is_wrong(unsubscribed: CollectServer) -> None:
    """A wrong secret, an unreachable callback, a missing URL, and an inactive application."""
    server, url = unsubscribed, unsubscribed.url.removesuffix("/collect")
    wrong = {"TALLY_COLLECT_STRAVA_CLIENT_SECRET": "wrong"}
    code, output = await run_subscribe(server, "--url", url, **wrong)
    assert code == 2
    assert "Strava refused to list subscriptions with status 401: Application invalid" in output
    code, output = await run_subscribe(server, "--url", "http://127.0.0.1:1")
    assert code == 2
    assert "PushSubscription callback url not verifiable" in output
    code, output = await run_subscribe(server)
    assert code == 2
    assert "TALLY_COLLECT_PUBLIC_URL" in output
    server.strava.is_inactive = True
    code, output = await run_subscribe(server, "--url", url)
    server.strava.is_inactive = False
    assert code == 2
    assert "Strava has deactivated the application" in output
    server.strava.faults.add(InjectedFault(path="/api/v3/push_subscriptions", drop="before"))
    code, output = await run_subscribe(server, "--url", url)
    assert code == 2
    assert "Strava is unreachable" in output
    assert server.strava.webhooks.subscription is None
