"""Refreshes open pages when what they show has changed, from the change logs.

    updates = LiveUpdates(store, hub, clock)
    refresh_on_change(lambda: updates.device(hardware_id), refresh, clock)

A change that any process makes refreshes the page at once, and a page of something that does not
change reads nothing. Each log is read once per process, and only while pages need it.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Final

from nicegui import background_tasks, core, ui

from tally.collect.repository.milestone_items import MilestoneLog
from tally.collect.repository.table import user_pk
from tally.cricket.repository.key_events import DisplayLog, changed_display
from tally.devices.repository.readings import ReadingLog
from tally.errors import Unavailable
from tally.instance.change_feed import Change, ChangeFeed, ChangeLog
from tally.kit.clock import Clock
from tally.kit.hub import Hub, StreamSubscription
from tally.store.store import Store

# A page is not drawn more often than this.
MIN_INTERVAL_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 2.0
_CHANGED: Final = b"changed"


class LiveUpdates:
    """The changes of devices, athletes and matches, as pages need them."""

    def __init__(self, store: Store, hub: Hub, clock: Clock) -> None:
        self._readings = _WatchedLog(
            ReadingLog(store), lambda change: [change.key["hardware_id"]], hub, clock
        )
        self._milestones = _WatchedLog(
            MilestoneLog(store), lambda change: [change.key["PK"]], hub, clock
        )
        self._displays = _WatchedLog(DisplayLog(store), _changed_matches, hub, clock)

    def device(self, hardware_id: str) -> AsyncGenerator[None, None]:
        """Yield once at first, and whenever readings of a device were stored."""
        return self._readings.changes(hardware_id)

    def athlete(self, user_id: str) -> AsyncGenerator[None, None]:
        """Yield once at first, and whenever items of a user of collect have changed."""
        return self._milestones.changes(user_pk(user_id))

    def match(self, match_id: str) -> AsyncGenerator[None, None]:
        """Yield once at first, and whenever the display state of a match has changed."""
        return self._displays.changes(match_id)


class _WatchedLog:
    """One change log and the pages that wait for its changes, by what they show."""

    def __init__(
        self,
        log: ChangeLog,
        subjects: Callable[[Change], Iterable[str]],
        hub: Hub,
        clock: Clock,
    ) -> None:
        self._subjects = subjects
        self._clock = clock
        self._pages: dict[str, set[StreamSubscription]] = defaultdict(set)
        self._feed = ChangeFeed(log, self._publish, hub, clock)

    async def changes(self, subject: str) -> AsyncGenerator[None, None]:
        while True:
            page = StreamSubscription()
            self._pages[subject].add(page)
            try:
                async with self._feed.following(page):
                    yield
                    while await page.next():
                        yield
            except Unavailable:
                pass  # the log is read again below
            finally:
                self._pages[subject].discard(page)
                if not self._pages[subject]:
                    del self._pages[subject]
            await self._clock.sleep(RETRY_SECONDS)

    async def _publish(self, change: Change) -> None:
        for subject in self._subjects(change):
            for page in self._pages.get(subject, ()):
                page.put_state(_CHANGED)


def refresh_on_change(
    changes: Callable[[], AsyncGenerator[None, None]],
    refresh: Callable[[], Awaitable[object]],
    clock: Clock,
) -> Callable[[], object]:
    """Call `refresh` after each change, while the current page is open; return what stops it."""
    client = ui.context.client

    async def follow() -> None:
        async with aclosing(changes()) as found:
            async for _ in found:
                with client:
                    try:
                        await refresh()
                    except Exception as error:  # noqa: BLE001  (as in a timer of NiceGUI)
                        core.app.handle_exception(error)
                await clock.sleep(MIN_INTERVAL_SECONDS)

    stop = background_tasks.create(follow(), name="live page").cancel
    client.on_delete(stop)
    return stop


def _changed_matches(change: Change) -> list[str]:
    changed = changed_display(change)
    return [] if changed is None else [changed[0]]
