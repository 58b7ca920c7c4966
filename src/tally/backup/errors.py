"""Errors of backup and restore; the command line maps the two classes to different exit codes."""

from tally.errors import TallyError


class BackupRejected(TallyError):
    """A precondition is not met; nothing was done."""

    default_code = "backup_not_tried"


class BackupFailed(TallyError):
    """The operation failed after it began; nothing of it is left behind."""

    default_code = "backup_failed"
