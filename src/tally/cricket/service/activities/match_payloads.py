"""What goes to devices about one match at one moment: contents and payloads, each made once however many devices there are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tally.cricket.model import payloads
from tally.cricket.model.display_content import sanitize_text, truncate_content
from tally.cricket.model.hashing import content_hash
from tally.cricket.model.payloads import Alert
from tally.cricket.model.records import NEUTRAL
from tally.cricket.service.ports import Show
from tally.errors import Invalid, NotFound
from tally.kit.clock import Clock

# The type of the app's Live Activities: it has to be called so there.
ATTRIBUTES_TYPE: Final = "CricketMatchAttributes"
# After this long without news a device says that the score may be old.
STALE_SECONDS: Final = 1_800
MAX_TITLE: Final = 40


@dataclass(slots=True)
class Sheet:
    """A match as devices are to show it now.

    It is made anew for every few hundred devices, since the match goes on.
    """

    match_id: str
    show: Show
    clock: Clock
    _contents: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _starts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _hashes: dict[str, str] = field(default_factory=dict)
    _made: dict[tuple[object, ...], bytes] = field(default_factory=dict)

    async def content(self, view: str) -> Mapping[str, Any]:
        if view not in self._contents:
            try:
                self._contents[view] = await self.show(self.match_id, view)
            except (
                NotFound
            ):  # a replay that has been deleted: what was shown of it can still be taken away
                self._contents[view] = {"matchId": self.match_id, "view": view}
            except (
                Invalid
            ):  # a side that no longer plays in the match, since the fixture has changed
                if view == NEUTRAL:
                    raise
                self._contents[view] = await self.content(NEUTRAL)
        return self._contents[view]

    async def shown(self, view: str) -> str:
        """The hash of what the view sees."""
        return content_hash(await self.content(view))

    async def shown_at_start(self, view: str) -> str:
        """The hash of what it sees by a start: another one, where something had to be left out."""
        if view not in self._hashes:
            self._hashes[view] = content_hash(await self.start_content(view))
        return self._hashes[view]

    async def start_content(self, view: str) -> Mapping[str, Any]:
        """The state as a start can carry it: it has less room than an update."""
        if view not in self._starts:
            self._starts[view] = truncate_content(
                dict(await self.content(view)), payloads.max_content_bytes("start")
            )
        return self._starts[view]

    async def start(self, view: str, channel_id: str | None) -> bytes:
        """Show the match on a device that does not show it yet."""
        content = await self.start_content(view)
        if (made := self._made.get(("start", view, channel_id))) is None:
            timestamp = self._timestamp(content)
            title = title_of(content)
            made = self._made["start", view, channel_id] = payloads.start_payload(
                timestamp=timestamp,
                content=content,
                attributes_type=ATTRIBUTES_TYPE,
                attributes={"matchId": self.match_id, "teamId": view, "title": title},
                alert=Alert(
                    title, str(content.get("lines", {}).get("lockScreen", "")) or "Live now"
                ),
                channel_id=channel_id,
                stale_at=timestamp + STALE_SECONDS,
            )
        return made

    async def update(self, view: str) -> bytes:
        """Show the state as it is now."""
        content = await self.content(view)
        timestamp = self._timestamp(content)
        return payloads.update_payload(
            timestamp=timestamp, content=content, stale_at=timestamp + STALE_SECONDS
        )

    async def end(self, view: str, shown_for: int = 0, *, to_channel: bool = False) -> bytes:
        """Show the last state for so many seconds more, or take it away at once."""
        content = await self.content(view)
        if (made := self._made.get(("end", view, to_channel))) is None:
            timestamp = self._timestamp(content)
            dismiss_at = timestamp + shown_for if shown_for else timestamp - 1
            made = payloads.end_payload(
                timestamp=timestamp, content=content, dismiss_at=dismiss_at, to_channel=to_channel
            )
            self._made["end", view, to_channel] = made
        return made

    def _timestamp(self, content: Mapping[str, Any]) -> int:
        """Never before that of the state itself, which may be ahead of the clock: a device ignores what seems older."""
        return max(self.clock.seconds(), int(content.get("timestamp", 0)))


def title_of(content: Mapping[str, Any]) -> str:
    """Who plays, by name, or by code where names are long."""
    for key in ("name", "code"):
        title = " v ".join(
            sanitize_text(str(team.get(key, ""))) for team in content.get("teams", ())
        )
        if title.strip(" v") and len(title) <= MAX_TITLE:
            return title
    return "Cricket"
