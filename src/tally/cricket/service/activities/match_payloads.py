"""Builds the push payloads of a match from its display states.

`DisplayUpdate` builds update and end payloads from given display states. `MatchPayloads` reads
the current display states of a match on demand, and caches what many devices share.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tally.cricket.model.display import DisplayLines, DisplayState, TeamDisplay
from tally.cricket.model.display_content import (
    content_hash,
    display_content,
    sanitize_text,
    truncate_content,
)
from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.payloads import (
    Alert,
    end_payload,
    max_content_bytes,
    start_payload,
    update_payload,
)
from tally.cricket.model.push import Priority
from tally.cricket.model.records import NEUTRAL
from tally.cricket.service.ports import ReadDisplay
from tally.errors import Invalid, NotFound
from tally.kit.clock import Clock

# The name of the ActivityAttributes type in the app.
ATTRIBUTES_TYPE: Final = "CricketMatchAttributes"
# A device marks the score as stale after this long without an update.
STALE_AFTER_SECONDS: Final = 1_800
# The final score stays on the Lock Screen for this long.
DISMISS_AFTER_SECONDS: Final = 900
# A dismissal date in the past removes a Live Activity immediately.
DISMISS_IMMEDIATELY: Final = -1
# APNs retries offline devices for this long.
PUSH_EXPIRATION_SECONDS: Final = 900
END_PUSH_EXPIRATION_SECONDS: Final = 4 * 3_600
MAX_TITLE_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class DisplayUpdate:
    """Content to display, one variant per team view.

    `is_end` ends the Live Activity, which iOS dismisses `dismiss_after` seconds later.
    """

    contents: Mapping[str, Mapping[str, Any]]
    timestamp: int
    is_end: bool = False
    dismiss_after: int = DISMISS_AFTER_SECONDS

    def payload(self, view: str, alert: Alert | None = None, *, to_channel: bool = False) -> bytes:
        content = self.contents.get(view) or self.contents[NEUTRAL]
        if self.is_end:
            return end_payload(
                timestamp=self.timestamp,
                content=content,
                dismiss_at=self.timestamp + self.dismiss_after,
                alert=alert,
                to_channel=to_channel,
            )
        return update_payload(
            timestamp=self.timestamp,
            content=content,
            alert=alert,
            stale_at=self.timestamp + STALE_AFTER_SECONDS,
            to_channel=to_channel,
        )

    def priority(self, is_alerted: bool) -> Priority:
        return 10 if is_alerted or self.is_end else 5

    @property
    def expiration(self) -> int:
        lifetime = END_PUSH_EXPIRATION_SECONDS if self.is_end else PUSH_EXPIRATION_SECONDS
        return self.timestamp + lifetime


@dataclass(slots=True)
class MatchPayloads:
    """The payloads of a match for a few hundred devices; each distinct one is encoded once.

    An instance is short-lived, because the display state changes.
    """

    match_id: str
    read_display: ReadDisplay
    clock: Clock
    _contents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _start_contents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _start_hashes: dict[str, str] = field(default_factory=dict)
    _payloads: dict[tuple[object, ...], bytes] = field(default_factory=dict)

    async def content(self, view: str) -> Mapping[str, Any]:
        """Return the display state of a view."""
        if view not in self._contents:
            try:
                self._contents[view] = await self.read_display(self.match_id, view)
            except NotFound:
                # A deleted replay: its Live Activities can still be ended.
                self._contents[view] = _empty_content(self.match_id, view)
            except Invalid:
                # A team that no longer plays in the match, because the fixture changed.
                if view == NEUTRAL:
                    raise
                self._contents[view] = await self.content(NEUTRAL)
        return self._contents[view]

    async def content_hash(self, view: str) -> str:
        """Return the hash of a view's display state."""
        return content_hash(await self.content(view))

    async def start_content_hash(self, view: str) -> str:
        """Return the hash of a view's display state as a start payload carries it."""
        if view not in self._start_hashes:
            self._start_hashes[view] = content_hash(await self.start_content(view))
        return self._start_hashes[view]

    async def start_content(self, view: str) -> Mapping[str, Any]:
        """Return the display state fitted to a start payload, which has less space."""
        if view not in self._start_contents:
            self._start_contents[view] = truncate_content(
                dict(await self.content(view)), max_content_bytes("start")
            )
        return self._start_contents[view]

    async def start(self, view: str, channel_id: str | None) -> bytes:
        """Build the payload that starts a Live Activity."""
        content = await self.start_content(view)
        if (payload := self._payloads.get(("start", view, channel_id))) is None:
            timestamp = self._timestamp(content)
            title = match_title(content)
            payload = self._payloads["start", view, channel_id] = start_payload(
                timestamp=timestamp,
                content=content,
                attributes_type=ATTRIBUTES_TYPE,
                attributes={"matchId": self.match_id, "teamId": view, "title": title},
                alert=Alert(
                    title, str(content.get("lines", {}).get("lockScreen", "")) or "Live now"
                ),
                channel_id=channel_id,
                stale_at=timestamp + STALE_AFTER_SECONDS,
            )
        return payload

    async def update(self, view: str) -> bytes:
        """Build the payload that displays the current state."""
        content = await self.content(view)
        return DisplayUpdate({view: content}, self._timestamp(content)).payload(view)

    async def end(self, view: str, dismiss_after: int, *, to_channel: bool = False) -> bytes:
        """Build the payload that ends a Live Activity with the current state."""
        content = await self.content(view)
        if (payload := self._payloads.get(("end", view, to_channel))) is None:
            update = DisplayUpdate(
                {view: content},
                self._timestamp(content),
                is_end=True,
                dismiss_after=dismiss_after,
            )
            payload = update.payload(view, to_channel=to_channel)
            self._payloads["end", view, to_channel] = payload
        return payload

    def _timestamp(self, content: Mapping[str, Any]) -> int:
        """Return the current time, or the time of the content if that is ahead of the clock.

        A device ignores a payload that is older than the state it displays.
        """
        return max(self.clock.seconds(), int(content.get("timestamp", 0)))


def _empty_content(match_id: str, view: str) -> Mapping[str, Any]:
    """Return the content of a match that no longer exists; iOS ignores incomplete content."""
    unknown = TeamDisplay("", "", "")
    state = DisplayState(
        match_id,
        view,
        MatchStatus.CANCELLED.value,
        (unknown, unknown),
        DisplayLines("", "", "", ""),
        timestamp=0,
    )
    return display_content(state, max_content_bytes("start"))


def match_title(content: Mapping[str, Any]) -> str:
    """Return the teams of a match, by name if that is short enough, otherwise by code."""
    for key in ("name", "code"):
        title = " v ".join(
            sanitize_text(str(team.get(key, ""))) for team in content.get("teams", ())
        )
        if title.strip(" v") and len(title) <= MAX_TITLE_CHARACTERS:
            return title
    return "Cricket"
