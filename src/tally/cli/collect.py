"""`tally collect subscribe`: registers, shows and removes the webhook subscription at Strava."""

import asyncio
from typing import Annotated

import typer

from tally.app import open_application
from tally.cli.startup import explained_errors, load_settings, local_user
from tally.collect.service.subscription import SubscriptionService
from tally.collect.wiring import Collect
from tally.errors import Invalid

collect_commands = typer.Typer(no_args_is_help=True)


@collect_commands.callback()
def collect_options() -> None:
    """Administer the collect backend."""


@collect_commands.command("subscribe")
def subscribe(
    url: Annotated[
        str | None,
        typer.Option(help="Public URL of the running server; default: TALLY_COLLECT_PUBLIC_URL."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show the subscription.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the subscription.")] = False,
) -> None:
    """Subscribe the webhook of the running server to the events of the Strava application."""
    if show and remove:
        raise typer.BadParameter("choose either --show or --remove", param_hint="--show")
    settings = load_settings(backends=["collect"])
    public_url = url or settings.collect_public_url

    async def change(subscription: SubscriptionService) -> str:
        if show:
            return await _show(subscription)
        if remove:
            removed = await subscription.remove()
            return f"Subscription {removed.subscription_id} removed."
        if public_url is None:
            raise Invalid("Set TALLY_COLLECT_PUBLIC_URL or --url to the URL that Strava can reach")
        found = await subscription.register(public_url)
        return (
            f"Subscription {found.subscription_id} sends events to {subscription.describe(found)}."
        )

    async def run() -> str:
        async with open_application(settings) as application:
            backend = application.backends["collect"]
            if not isinstance(backend, Collect):
                raise TypeError("the backend collect is of another type")
            subscription = backend.services.subscription
            if show:
                return await change(subscription)
            action = "collect unsubscribe" if remove else "collect subscribe"
            async with application.operators.recording(local_user(), action, public_url or ""):
                return await change(subscription)

    with explained_errors():
        typer.echo(asyncio.run(run()))
    configured = settings.collect_strava_subscription_id
    if configured and not remove:
        typer.echo(
            f"TALLY_COLLECT_STRAVA_SUBSCRIPTION_ID is {configured}: the server accepts only events"
            " of that subscription.",
            err=True,
        )


async def _show(subscription: SubscriptionService) -> str:
    found, stored = await subscription.show(), await subscription.stored_id()
    if found is None:
        return "Strava has no subscription of this application."
    text = f"Subscription {found.subscription_id} sends events to {subscription.describe(found)}."
    if stored == found.subscription_id:
        return text
    return f"{text}\nThis server does not accept its events yet; run tally collect subscribe."
