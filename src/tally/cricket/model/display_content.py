"""A display state as JSON that fits where it must go, and never a broken one.

Names and texts come from outside. `content_of` first makes them harmless: no lone surrogates, no
control characters, none longer than any person would read. Then, while the JSON has more bytes than
there is room, parts are left out, the least missed first:

1. the expanded line, 2. the status in words, 3. balls beyond the last six, 4. the event's sentence, 5. the bowler, 6. the rates
and the target, 7. the balls, 8. the batters, 9. what is needed, 10. the result, 11. the names of
the sides, whose codes stay,
12. the event;

and if that is not enough, texts are cut shorter and shorter. What is left in the end is who plays,
the scores, and the time.
"""

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from tally.cricket.model.display import DisplayState

MAX_CHARACTERS: Final = 160
_ELLIPSIS: Final = "…"
# Never the last character of a text that was cut: they change or join the one before.
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f")
_SHORTER: Final = (80, 40, 24, 12, 6, 3)

Content: TypeAlias = dict[str, Any]


def display_content(state: DisplayState, room: int) -> Content:
    """The state as it goes to devices, in at most `room` bytes of JSON; with less than 400 there may be nothing to leave out."""
    return truncate_content(_harmless(msgspec.to_builtins(state), MAX_CHARACTERS), room)


def truncate_content(content: Content, room: int) -> Content:
    """What is harmless already, with as much left out as it takes."""
    for drop in DROPPED:
        if json_size(content) <= room:
            return content
        content = drop(content)
    for most in _SHORTER:
        if json_size(content) <= room:
            break
        content = _harmless(content, most)
    return content


def json_size(content: Mapping[str, Any]) -> int:
    """Bytes as JSON."""
    return len(msgspec.json.encode(content))


def sanitize_text(text: str, most: int = MAX_CHARACTERS) -> str:
    """The text as it can be shown anywhere, and no longer than `most` characters."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = "".join(
        character if character.isprintable() or character in _JOINERS else " " for character in text
    )
    text = " ".join(text.split())
    return text if len(text) <= most else truncate_text(text, most)


def truncate_text(text: str, most: int) -> str:
    """The beginning of the text, ending in an ellipsis, without half a character at the end."""
    kept = text[: most - 1]
    while kept and (
        kept[-1] in _JOINERS
        or (text[len(kept)] in _JOINERS or unicodedata.combining(text[len(kept)]))
    ):
        kept = kept[:-1]
    return kept.rstrip() + _ELLIPSIS


def _harmless(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return sanitize_text(value, most)
    if isinstance(value, dict):
        return {
            name: _harmless(each, MAX_CHARACTERS if name in _EXACT else most)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_harmless(each, most) for each in value]
    return value


# Ids, and words of ours, mean nothing when they are shortened.
_EXACT: Final = frozenset({"matchId", "view", "id", "status", "kind", "mood"})


def _without(*names: str) -> Callable[[Content], Content]:
    return lambda content: {name: value for name, value in content.items() if name not in names}


def _without_in(part: str, name: str) -> Callable[[Content], Content]:
    def drop(content: Content) -> Content:
        inner = content.get(part)
        return (
            content
            if inner is None
            else content | {part: {key: value for key, value in inner.items() if key != name}}
        )

    return drop


def _six_balls(content: Content) -> Content:
    return content | {"lastBalls": content["lastBalls"][-6:]} if "lastBalls" in content else content


def _codes_alone(content: Content) -> Content:
    return content | {"teams": [team | {"name": team["code"]} for team in content["teams"]]}


DROPPED: Final[tuple[Callable[[Content], Content], ...]] = (
    _without_in("lines", "expanded"),
    _without("statusText"),
    _six_balls,
    _without_in("keyEvent", "text"),
    _without("bowler"),
    _without("runRate", "requiredRate", "target"),
    _without("lastBalls"),
    _without("batters"),
    _without("need"),
    _without("result"),
    _codes_alone,
    _without("keyEvent"),
)
