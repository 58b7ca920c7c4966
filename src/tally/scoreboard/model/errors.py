"""The errors of the scoreboard."""

from tally.errors import Conflict, Forbidden, Invalid, Unavailable


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
