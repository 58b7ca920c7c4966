"""What can go wrong with a back-up, in two kinds, which the command line tells apart by its exit code."""

from tally.errors import TallyError


class BackupRejected(TallyError):
    """Nothing was done, since something is in the way that a person can mend."""

    default_code = "backup_not_tried"


class BackupFailed(TallyError):
    """It was begun, and did not succeed; nothing of it is left behind."""

    default_code = "backup_failed"
