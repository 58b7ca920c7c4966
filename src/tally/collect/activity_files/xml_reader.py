"""Reads XML as a stream of elements, within bounds and without entities, DTDs or network access."""

import io
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from lxml import etree

from tally.collect.model.files import implausible, too_complex
from tally.errors import Invalid

MAX_DEPTH: Final = 32
MAX_NUMBER_LENGTH: Final = 64


class XmlReader:
    """Iterates over the ends of elements; `path` holds the local names of the open ones."""

    def __init__(self, content: bytes) -> None:
        self.path: list[str] = []
        self._events = etree.iterparse(
            io.BytesIO(content),
            events=("start", "end"),
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield ("start" or "end", element). An element is freed after its end."""
        try:
            for event, element in self._events:
                if event == "start":
                    self._open(element)
                    yield event, element
                else:
                    yield event, element
                    self.path.pop()
                    _free(element, self.path)
        except etree.XMLSyntaxError as error:
            raise corrupt(f"The XML is malformed: {_reason(error)}") from error

    def _open(self, element: Any) -> None:
        if not self.path and element.getroottree().docinfo.doctype:
            raise corrupt("The XML must not contain a DOCTYPE")
        self.path.append(etree.QName(element).localname)
        if len(self.path) > MAX_DEPTH:
            raise too_complex(f"Elements must be nested at most {MAX_DEPTH} levels deep")


def corrupt(message: str) -> Invalid:
    return Invalid(message, code="corrupt_file")


def child_text(element: Any, name: str) -> str | None:
    """Return the text of the first child with this local name."""
    for child in element:
        if etree.QName(child).localname == name:
            text = child.text
            return None if text is None else str(text).strip()
    return None


def parse_number(text: str | None, name: str, line: int | None) -> float | None:
    if text is None or not text:
        return None
    try:
        number = float(text) if len(text) <= MAX_NUMBER_LENGTH else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise implausible(f"{name} must be a number (line {line})")
    return number


def parse_instant(text: str | None, name: str, line: int | None) -> float | None:
    """Return epoch seconds. A time without a zone is UTC, as GPX specifies."""
    if text is None or not text:
        return None
    try:
        time = datetime.fromisoformat(text[:MAX_NUMBER_LENGTH])
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise implausible(
            f"{name} must be a time such as 2026-01-31T09:30:00Z (line {line})"
        ) from error


def _free(element: Any, path: list[str]) -> None:
    """Drop the content of large elements; small ones stay readable for their parent."""
    if len(path) <= 2 or etree.QName(element).localname in {"trkpt", "Trackpoint", "rtept", "wpt"}:
        element.clear()
        while element.getprevious() is not None:
            del element.getparent()[0]


def _reason(error: Exception) -> str:
    return str(error).split("\n")[0][:200]
