"""The collect page of a production server: goals that stand still, and accounts being deleted."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tally.app import open_application
from tally.collect.model.accounts import AccountDeletion, DeletionRetry, DeletionStep
from tally.collect.model.records import Metric, Sport
from tally.collect.service.engine import TOO_MANY_WORKOUTS
from tally.collect.service.milestones import Goal
from tally.collect.wiring import Collect
from tally.settings import Settings
from tests.browser.conftest import ARTEFACTS, watch_errors
from tests.collect import factories
from tests.collect.service_harness import put_workout
from tests.console.console_server import ConsoleServer, console_server

# A time at which the worker does not attempt the deletion again while the test runs.
FAR_FUTURE = 4_000_000_000


async def write_accounts(folder: Path) -> tuple[str, str, str]:
    """Write an account with goals in every state, one without goals, and one being deleted."""
    users = [factories.new_user_id() for _ in range(3)]
    async with open_application(
        Settings(data_dir=folder / "data", backends=("collect",))
    ) as application:
        collect = application.backends["collect"]
        assert isinstance(collect, Collect)
        milestones = collect.services.milestones
        repository = milestones.repository
        for user in users:
            assert await repository.create_profile(factories.profile(user))
        linked = factories.connection(users[0])
        assert await repository.link(linked, None)
        assert await repository.require_relink(linked)
        workout = factories.workout(users[0], distance=3_000)
        assert await put_workout(repository, workout, linked.athlete_id, None)
        targets = (12_000, 24_000, 48_000)
        goals = [
            await milestones.create(
                users[0],
                Goal("fox", Sport.RIDE, Metric.DISTANCE_METERS, target, factories.TIME),
            )
            for target in targets
        ]
        await milestones.archive(users[0], goals[1].milestone.milestone_id)
        stalled = goals[2].milestone
        assert await repository.mint(
            replace(stalled, stalled_reason=TOO_MANY_WORKOUTS, version=stalled.version + 1), ()
        )
        steps = (DeletionStep.STRAVA, DeletionStep.IDENTITY)
        assert await repository.request_deletion(
            AccountDeletion(users[2], factories.TIME, "correlation", steps)
        )
        assert await repository.claim_deletion(users[2], "run", FAR_FUTURE, 60)
        failed = DeletionRetry(1, FAR_FUTURE, "strava: unavailable")
        assert await repository.postpone_deletion(users[2], "run", failed)
    return users[0], users[1], users[2]


@pytest.fixture(scope="module")
async def server(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[ConsoleServer, tuple[str, str, str]]]:
    folder = tmp_path_factory.mktemp("states")
    users = await write_accounts(folder)
    async with console_server(folder, "collect") as running:
        yield running, users


async def show_athlete(page: Page, user_id: str) -> None:
    """Find the athlete by the user ID: these accounts have no sign-in in the audit trail."""
    await page.goto(f"{page.url.partition('/collect')[0]}/collect")
    await page.get_by_label("Find an athlete").fill(user_id)
    await page.get_by_role("main").get_by_role("link", name=user_id[:8]).click()
    await expect(page).to_have_url(re.compile(rf"/collect/athletes/{user_id}$"))


@pytest.mark.judge
async def test_goals_that_stand_still_and_deletions_are_shown(
    browser: Browser, server: tuple[ConsoleServer, tuple[str, str, str]]
) -> None:
    """An account without goals shows nothing of the one before."""
    running, (athlete, newcomer, deleted) = server
    page = await browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(90_000)
    errors = watch_errors(page)
    await page.goto(f"{running.console}/collect")
    await page.get_by_label("Operator token").fill(await running.add_operator("ana"))
    await page.get_by_role("button", name="Sign in").click()
    for text in ("Remaining: strava, identity", "1 failed attempt, last error strava: unavailable"):
        await expect(page.get_by_text(text, exact=True)).to_be_visible()
    await expect(page.get_by_text(deleted)).to_be_visible()
    await show_athlete(page, athlete)
    for text in (
        "3 of 12 parts, active",
        "1 of 12 parts, archived",
        "0 of 12 parts, stalled: too many workouts",
        "Strava rejected the tokens of this athlete, who has to link again.",
    ):
        await expect(page.get_by_text(text, exact=True)).to_be_visible()
    await expect(page.get_by_text("1. Meadow", exact=True)).to_be_visible()
    ARTEFACTS.mkdir(exist_ok=True)
    await page.screenshot(path=ARTEFACTS / "collect-states.png", full_page=True)
    await show_athlete(page, newcomer)
    await expect(page.get_by_text("No milestones yet.")).to_be_visible()
    await expect(page.get_by_text("No parts yet")).to_be_visible()
    await expect(page.get_by_text("parts earned")).to_have_count(0)
    await expect(page.get_by_text("Strava rejected")).to_have_count(0)
    await page.screenshot(path=ARTEFACTS / "collect-newcomer.png", full_page=True)
    await page.goto(f"{running.console}/collect")
    await page.get_by_label("Find an athlete").fill("nobody")
    await expect(page.get_by_text('No athlete matches "nobody".')).to_be_visible()
    unknown = await page.goto(f"{running.console}/collect/athletes/nobody")
    assert unknown is not None
    assert unknown.status == 404
    await expect(page.get_by_text("Athlete nobody does not exist")).to_be_visible()
    await expect(page.get_by_role("heading", name="Milestones")).to_have_count(0)
    await page.close()
    assert errors == []
