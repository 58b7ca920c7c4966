"""Why a move cannot start or continue."""

from tally.errors import TallyError


class MoveFailed(TallyError):
    """The move stopped; the message says what to do."""

    default_code = "move_failed"
