"""The errors of the scoreboard."""

from tally.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable


class CacheUnavailable(Unavailable):
    """Redis did not respond. PostgreSQL has the same data, so callers fall back to it."""

    default_code = "cache_unavailable"


class LeaderboardNotCached(CacheUnavailable):
    """Redis responds but holds no complete leaderboard: it restarted, or no rebuild has run yet."""

    default_code = "leaderboard_not_cached"


class ForeignActionToken(Invalid):
    """Another player has already used the action token."""

    default_code = "invalid_action_token"


class ScoreOverflow(Conflict):
    """The score would exceed `MAX_SCORE`; nothing was added."""

    default_code = "score_too_great"


class ScoreUnderflow(Conflict):
    """The score would be negative; nothing was subtracted."""

    default_code = "score_too_small"


class PlayerBanned(Forbidden):
    """The player is banned: the score is kept, but does not change or appear anywhere."""

    default_code = "player_banned"


class UsernameTaken(Conflict):
    """Another account has this username."""

    default_code = "username_taken"


class EmailTaken(Conflict):
    """Another account has this email address."""

    default_code = "email_taken"


class RebuildInProgress(Conflict):
    """Another process is rebuilding the leaderboard."""

    default_code = "rebuild_under_way"


class ActionExists(Conflict):
    """The action was reported before."""

    default_code = "action_exists"


class BoardExists(Conflict):
    """A board with this id and other content exists."""

    default_code = "board_exists"


class BoardNotFound(NotFound):
    """There is no board with this id."""

    default_code = "board_not_found"


class SeasonDue(Unavailable):
    """The board's season has to be closed before the change; the service does and tries again."""

    default_code = "season_due"

    def __init__(self, board_id: str) -> None:
        super().__init__(f'The season of board "{board_id}" is being closed', retry_after=1)
        self.board_id = board_id
