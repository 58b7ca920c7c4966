"""A virtual iPhone on the match page: its Lock Screen shows the payload that was pushed to it.

The phone is one of the demo's. It follows the match through the real API and receives pushes from
the APNs simulator. Only the demo has one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from tally.console.context import ConsoleContext
from tally.console.formatting import pluralize
from tally.console.shell import Region, card
from tally.console.toasts import report_problem

# The console also runs where the extra "demo" is not installed.
if TYPE_CHECKING:
    from tally.sim.demo.phones import DemoPhones
    from tally.sim.phones.activitykit import PhoneActivity

FOLLOW_STATES: Final = {
    "not following": ("notifications_none", "Not following: tap to follow"),
    "following": ("notifications_active", "Following"),
    "following, Live Activities are off": (
        "notification_important",
        "Following, but Live Activities are off",
    ),
    "pending": ("hourglass_top", "Pending"),
}
SCREEN: Final = (
    "background: linear-gradient(160deg, #20343f, #0e1518); border-radius: 34px;"
    "border: 8px solid #0a0d0e; color: white;"
    "min-height: 330px; padding: 18px 12px;"
)
ACTIVITY: Final = (
    "background: rgb(20 26 28 / .92); border: 1px solid rgb(255 255 255 / .18);"
    "border-radius: 18px; padding: 12px;"
)


class Iphone:
    """The virtual phone for one match."""

    def __init__(self, context: ConsoleContext, phones: "DemoPhones", match_id: str) -> None:
        self._context = context
        self._phones = phones
        self._match_id = match_id

    def build(self) -> None:
        with card(
            "Virtual iPhone",
            about="Follow the match to see the pushed payload on the Lock Screen.",
        ):
            with ui.column().classes("w-full items-stretch").style(SCREEN).props("data-iphone=1"):
                self._clock = ui.label().classes("text-h4 text-center")
                self._screen = Region(ui.column().classes("w-full gap-2"))
            with ui.row().classes("items-center gap-1 w-full"):
                self._bell = ui.button("Follow", icon="notifications_none").props(
                    "no-caps data-follow=1"
                )
                swipe = ui.button("Dismiss activity").props("flat no-caps dense")
                kill = ui.button("Quit the app").props("flat no-caps dense color=negative")
                for button, run in (
                    (self._bell, self.follow),
                    (swipe, self.swipe),
                    (kill, self.kill),
                ):
                    self._context.changes.control(button, run)
            self._status = ui.label().classes("tally-quiet")

    def refresh(self) -> None:
        self._clock.set_text(f"{self._context.clock.now():%H:%M}")
        phone = self._phones.visitor
        if phone is None:
            self._screen.show("no phone", lambda: ui.label("The phone has not started yet."))
            return
        activities = [
            activity
            for activity in phone.activity_kit.on_screen()
            if activity.match_id == self._match_id
        ]
        versions = [
            (activity.activity_id, activity.updates, activity.timestamp, activity.state)
            for activity in activities
        ]
        self._screen.show(versions, lambda: _lock_screen(activities))
        icon, status = FOLLOW_STATES[phone.bell(self._match_id).value]
        self._bell.props(f"icon={icon}")
        is_following = self._match_id in (
            phone.app.follows.followed if phone.app is not None else {}
        )
        self._bell.set_text("Unfollow" if is_following else "Follow")
        self._status.set_text(
            status if phone.app is not None else f"{status}; the app is not running"
        )

    async def follow(self) -> None:
        phone = self._phones.visitor
        if phone is None:
            return
        async with self._context.changes.audited("demo_phone_follow", self._match_id):
            app = phone.app or await phone.launch()
            if self._match_id in app.follows.followed:
                await app.follows.unfollow(self._match_id)
            elif not await app.follows.follow(self._match_id):
                report_problem(phone.api.last_error or "Request failed")
        self.refresh()

    async def swipe(self) -> None:
        if self._phones.visitor is not None:
            async with self._context.changes.audited("demo_phone_dismiss", self._match_id):
                await self._phones.visitor.swipe_away(self._match_id)
            self.refresh()

    async def kill(self) -> None:
        if self._phones.visitor is not None:
            async with self._context.changes.audited("demo_phone_quit", self._match_id):
                self._phones.visitor.quit()
            self.refresh()


def _lock_screen(activities: "Sequence[PhoneActivity]") -> None:
    if not activities:
        ui.label("No Live Activity").classes("w-full text-center").style("color: #c9d3d6")
    for activity in activities:
        _live_activity(activity)


def _live_activity(activity: "PhoneActivity") -> None:
    content: Any = activity.content
    with ui.column().classes("w-full gap-1").style(ACTIVITY).props("data-activity=1"):
        for team in content.get("teams", ()):
            with ui.row().classes("w-full justify-between"):
                ui.label(team.get("name", "")).classes("text-weight-medium")
                ui.label(f"{team.get('score', '')} {_overs(team)}")
        for line in (content.get("need"), content.get("result")):
            if line:
                ui.label(line)
        event = content.get("keyEvent")
        if event:
            ui.label(f"{event.get('title', '')} {event.get('text', '')}").style("color: #ffd28a")
        ui.label(" ".join(content.get("lastBalls", ()))).style("color: #c9d3d6")
        how = "by channel" if activity.channel is not None else "by token"
        updates = pluralize(activity.updates, "update", "updates")
        ui.label(f"{activity.updates} {updates} {how}, {activity.state.value}").style(
            "color: #c9d3d6; font-size: .75rem"
        )


def _overs(team: Any) -> str:
    return f"({team['overs']})" if team.get("overs") else ""
