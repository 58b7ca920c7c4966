"""The document that the parser process writes."""

import msgspec

from tally.collect.model.files import ParsedFile


class ParseFailure(msgspec.Struct, frozen=True):
    """Why a file was rejected: the code and message for the client."""

    code: str
    message: str
    is_too_large: bool = False


class ParseOutcome(msgspec.Struct, frozen=True):
    """Exactly one of a summary and a failure."""

    parsed: ParsedFile | None = None
    failure: ParseFailure | None = None
