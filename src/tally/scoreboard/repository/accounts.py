"""The table `users`. Creating an account also creates its score of 0."""

import ipaddress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import asyncpg

from tally.errors import NotFound
from tally.scoreboard.model.accounts import (
    DeletedAccount,
    NewUser,
    ProfileChange,
    User,
    UserCredentials,
)
from tally.scoreboard.model.errors import EmailTaken, UsernameTaken
from tally.scoreboard.repository.board_changes import delete_scores, touch_scores
from tally.scoreboard.repository.database import Database, Row

_COLUMNS: Final = "id, username, email, avatar_url, created_at, updated_at"

_CREATE: Final = f"""
WITH account AS (
    INSERT INTO users (id, username, email, password_hash, avatar_url, created_at, updated_at)
    VALUES ($1, $2, $3, $4, $5, $6, $6)
    RETURNING {_COLUMNS}
), score AS (
    INSERT INTO scores (user_id, total_score, score_first_reached_at, updated_at)
    SELECT id, 0, $6, $6 FROM account
)
SELECT * FROM account
"""

_UPDATE: Final = f"""
UPDATE users SET username = coalesce($2, username), email = coalesce($3, email),
    avatar_url = CASE WHEN $4 THEN $5 ELSE avatar_url END, updated_at = $6
WHERE id = $1 RETURNING {_COLUMNS}
"""

# Reads all accounts, because a part of a name has no index: only for operators.
_SEARCH: Final = f"""
SELECT {_COLUMNS} FROM users
WHERE strpos(lower(username), $1) > 0 OR lower(email) = $1 OR id::text = $1
ORDER BY lower(username) = $1 DESC, lower(username) LIMIT $2
"""

# Part of the same statement, so that an unknown login takes as many requests as a known one.
_IS_KNOWN_ADDRESS: Final = """
EXISTS (SELECT FROM known_addresses WHERE user_id = users.id AND network = $2::inet)
"""
# A username contains no @, so at most one of the two conditions matches.
_FIND_CREDENTIALS: Final = f"""
SELECT {_COLUMNS}, password_hash, {_IS_KNOWN_ADDRESS} AS is_known_address FROM users
WHERE lower(username) = lower($1) OR lower(email) = lower($1)
"""

# The score is locked before the account, as in a score change, so that the two cannot deadlock. The
# end of a ban, for which the second statement waits, brings a score that the first one did not see.
# Once the account is locked, no other request adds a row of it.
_LOCK_SCORE: Final = "SELECT FROM scores WHERE user_id = $1 FOR UPDATE"
_LOCK: Final = (
    _LOCK_SCORE,
    "SELECT FROM banned_scores WHERE user_id = $1 FOR UPDATE",
    _LOCK_SCORE,
    "SELECT FROM users WHERE id = $1 FOR UPDATE",
)
_DELETE_SESSIONS: Final = """
WITH deleted AS (DELETE FROM sessions WHERE user_id = $1 RETURNING token_hash, revoked_at)
SELECT token_hash FROM deleted WHERE revoked_at IS NULL
"""
_DELETE_USED_TOKENS: Final = """
DELETE FROM consumed_tokens WHERE token_hash = ANY(ARRAY(
    SELECT action_token_hash FROM score_events WHERE user_id = $1
)) RETURNING token_hash
"""
# The ids of an action and of a token occur in other tables, and the game server may write a name
# into the first and into the metadata.
_ANONYMISE: Final = (
    # So that the bands of ranks learn that a banned player has gone; see `rank_bands`.
    """
    INSERT INTO scores (user_id, total_score, score_first_reached_at)
    SELECT user_id, total_score, score_first_reached_at FROM banned_scores WHERE user_id = $1
    """,
    """
    DELETE FROM failed_sign_ins WHERE subject = (
        SELECT 'reset:' || encode(sha256(convert_to(lower(email), 'UTF8')), 'hex') FROM users
        WHERE id = $1
    )
    """,
    """
    DELETE FROM password_reset_requests r USING users u
    WHERE u.id = $1 AND r.email = lower(u.email)
    """,
    """
    UPDATE score_events SET user_id = NULL, action_id = gen_random_uuid()::text,
        action_token_hash = gen_random_uuid()::text, metadata = '{}', client_info = '{}'
    WHERE user_id = $1
    """,
    "DELETE FROM completed_actions WHERE user_id = $1",
    """
    DELETE FROM failed_sign_ins
    WHERE split_part(split_part(subject, ':', 2), '@', 1) = $1::uuid::text
    """,
)


@dataclass(frozen=True, slots=True)
class AccountRepository:
    """Accounts by id and by login."""

    database: Database

    async def create(self, account: NewUser, at: datetime) -> User:
        """Create the account and its score; raises UsernameTaken or EmailTaken."""
        try:
            row = await self.database.row(
                "create_account",
                _CREATE,
                account.user_id,
                account.username,
                account.email,
                account.password_hash,
                account.avatar_url,
                at,
            )
        except asyncpg.UniqueViolationError as error:
            raise _taken(error) from error
        return _user(row)

    async def update(self, user_id: str, change: ProfileChange, at: datetime) -> User:
        """Change the account; raises NotFound, UsernameTaken, EmailTaken or SeasonDue."""
        try:
            async with self.database.use("update_account") as connection, connection.transaction():
                # The score is locked first, as in a score change.
                await connection.execute(
                    "UPDATE scores SET revision = revision + 1 WHERE user_id = $1", user_id
                )
                row = await connection.fetchrow(
                    _UPDATE,
                    user_id,
                    change.username,
                    change.email,
                    change.has_avatar,
                    change.avatar_url,
                    at,
                )
                if change.email is not None:  # a token was sent to the old address
                    await connection.execute(
                        "DELETE FROM password_reset_tokens WHERE user_id = $1", user_id
                    )
                await touch_scores(connection, user_id, at)
        except asyncpg.UniqueViolationError as error:
            raise _taken(error) from error
        if row is None:
            raise NotFound("User does not exist", code="user_not_found")
        return _user(row)

    async def search(self, text: str, limit: int) -> list[User]:
        """Find accounts by a part of the username, or by the whole id or email address."""
        rows = await self.database.rows("search_accounts", _SEARCH, text.lower(), limit)
        return [_user(row) for row in rows]

    async def find(self, user_id: str) -> User | None:
        row = await self.database.row(
            "find_account", f"SELECT {_COLUMNS} FROM users WHERE id = $1", user_id
        )
        return None if row is None else _user(row)

    async def find_credentials(
        self, login: str, address: str | None = None
    ) -> UserCredentials | None:
        """Find an account by username or email, regardless of case.

        `address` is the client's address or network, if it has one.
        """
        network = None if address is None else ipaddress.ip_network(address)
        row = await self.database.row("find_credentials", _FIND_CREDENTIALS, login, network)
        if row is None:
            return None
        return UserCredentials(_user(row), row["password_hash"], row["is_known_address"] is True)

    async def find_credentials_by_id(self, user_id: str) -> UserCredentials:
        """Return the credentials of an account; raises NotFound."""
        row = await self.database.row(
            "find_credentials_by_id",
            f"SELECT {_COLUMNS}, password_hash FROM users WHERE id = $1",
            user_id,
        )
        if row is None:
            raise NotFound(f"Player {user_id} does not exist", code="user_not_found")
        return UserCredentials(_user(row), row["password_hash"])

    async def update_password_hash(
        self, user_id: str, old_hash: str, new_hash: str, at: datetime
    ) -> None:
        """Replace the hash of the same password, unless the password was changed meanwhile."""
        await self.database.value(
            "update_password_hash",
            "UPDATE users SET password_hash = $3, updated_at = $4"
            " WHERE id = $1 AND password_hash = $2",
            user_id,
            old_hash,
            new_hash,
            at,
        )

    async def delete(self, user_id: str, at: datetime) -> DeletedAccount | None:
        """Delete the account, its scores and sessions, and make its events anonymous.

        No row leads back to the player. Return what Redis has of the account, or None if the
        account does not exist. Raises SeasonDue.
        """
        async with self.database.use("delete_account") as connection, connection.transaction():
            for statement in _LOCK:
                await connection.execute(statement, user_id)
            sessions = await connection.fetch(_DELETE_SESSIONS, user_id)
            used = await connection.fetch(_DELETE_USED_TOKENS, user_id)
            for statement in _ANONYMISE:
                await connection.execute(statement, user_id)
            places = await delete_scores(connection, user_id, at)
            deleted = await connection.fetchval(
                "DELETE FROM users WHERE id = $1 RETURNING id", user_id
            )
        if deleted is None:
            return None
        return DeletedAccount(
            places, [row["token_hash"] for row in sessions], [row["token_hash"] for row in used]
        )


def _taken(error: asyncpg.UniqueViolationError) -> UsernameTaken | EmailTaken:
    if error.constraint_name == "idx_users_email":
        return EmailTaken("An account with this email address exists", field="email")
    return UsernameTaken("This username is taken", field="username")


def _user(row: Row) -> User:
    return User(
        str(row["id"]),
        row["username"],
        row["email"],
        row["created_at"],
        row["updated_at"],
        row["avatar_url"],
    )
