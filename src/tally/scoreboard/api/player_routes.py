"""The routes of accounts: registration, login, sessions, passwords and profiles."""

from tally.kit.endpoints import Endpoint
from tally.scoreboard.api.endpoint_options import AUTH_ROUTE_ERRORS, PLAYER, PREFIX
from tally.scoreboard.api.handlers import Handlers
from tally.scoreboard.api.schemas import examples, requests, responses


def player_endpoints(handlers: Handlers) -> tuple[Endpoint, ...]:
    """Return the endpoints of accounts and their sessions."""
    return (
        *_auth(handlers),
        *_sessions(handlers),
        *_account_security(handlers),
        *_password_reset(handlers),
        *_account(handlers),
    )


def _auth(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/auth/register",
            handlers.register,
            "Register an account",
            description="Creates an account with a score of 0 and logs in.",
            request=requests.RegisterRequest,
            request_example=requests.RegisterRequest(
                "ana_99", "ana@example.com", "a long password"
            ),
            status=201,
            errors=(
                *AUTH_ROUTE_ERRORS,
                examples.WEAK_PASSWORD,
                examples.USERNAME_TAKEN,
                examples.EMAIL_TAKEN,
            ),
            response=responses.LoginResponse,
            response_example=examples.LOGIN,
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/login",
            handlers.login,
            "Log in",
            description="`login` is the username or the email address.",
            request=requests.LoginRequest,
            request_example=requests.LoginRequest("ana_99", "a long password"),
            errors=(
                *AUTH_ROUTE_ERRORS,
                examples.INVALID_CREDENTIALS,
                examples.TOO_MANY_SIGN_INS,
            ),
            response=responses.LoginResponse,
            response_example=examples.LOGIN,
        ),
    )


def _sessions(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, *AUTH_ROUTE_ERRORS)
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/auth/refresh",
            handlers.refresh_tokens,
            "Refresh the tokens",
            description=(
                "Returns the next tokens. Repeating the request within 30 seconds returns the same"
                " tokens; reusing a refresh token later revokes its session."
            ),
            request=requests.RefreshRequest,
            request_example=requests.RefreshRequest("kq3vQ0x9"),
            errors=(*AUTH_ROUTE_ERRORS, examples.INVALID_REFRESH_TOKEN),
            response=responses.TokensResponse,
            response_example=examples.TOKENS,
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/logout",
            handlers.logout,
            "Log out",
            description="Revokes the session immediately, on every server.",
            status=204,
            errors=(*errors, examples.SESSION_NOT_FOUND),
            **PLAYER,
        ),
        Endpoint(
            "GET",
            f"{PREFIX}/auth/sessions",
            handlers.list_sessions,
            "List your sessions, newest first",
            errors=errors,
            **PLAYER,
            response=responses.SessionsResponse,
            response_example=responses.SessionsResponse([examples.SESSION]),
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/auth/sessions/{{session_id}}",
            handlers.revoke_session,
            "Revoke one of your sessions",
            status=204,
            errors=(*errors, examples.INVALID_SESSION_ID, examples.SESSION_NOT_FOUND),
            **PLAYER,
        ),
    )


def _account_security(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, *AUTH_ROUTE_ERRORS)
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/auth/password",
            handlers.change_password,
            "Change your password",
            description="Revokes your other sessions immediately, on every server.",
            request=requests.ChangePasswordRequest,
            request_example=requests.ChangePasswordRequest(
                "a long password", "another long password"
            ),
            status=204,
            errors=(
                *errors,
                examples.WEAK_PASSWORD,
                examples.WRONG_PASSWORD,
                examples.PASSWORD_CHANGED,
                examples.TOO_MANY_SIGN_INS,
            ),
            **PLAYER,
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/auth/sessions",
            handlers.revoke_all_sessions,
            "Log out everywhere",
            description="Revokes all your sessions immediately, on every server.",
            status=204,
            errors=errors,
            **PLAYER,
        ),
    )


def _account(handlers: Handlers) -> tuple[Endpoint, ...]:
    errors = (*examples.PLAYER_AUTH_ERRORS, examples.RATE_LIMITED, examples.UNAVAILABLE)
    return (
        Endpoint(
            "GET",
            f"{PREFIX}/users/me",
            handlers.get_account,
            "Get your account",
            errors=(*errors, examples.USER_NOT_FOUND),
            **PLAYER,
            response=responses.UserResponse,
            response_example=examples.USER,
        ),
        Endpoint(
            "PATCH",
            f"{PREFIX}/users/me",
            handlers.update_account,
            "Change your username, email address or avatar",
            description="Absent fields keep their value; an `avatar_url` of null removes it. An"
            " `email` requires the `current_password`, because password resets are sent to it.",
            request=requests.UpdateAccountRequest,
            request_example=requests.UpdateAccountRequest(
                "ana_99", "ana@example.com", examples.AVATAR_URL, "a long password"
            ),
            errors=(
                *errors,
                examples.WRONG_PASSWORD,
                examples.TOO_MANY_SIGN_INS,
                examples.USERNAME_TAKEN,
                examples.EMAIL_TAKEN,
                examples.USER_NOT_FOUND,
            ),
            **PLAYER,
            response=responses.UserResponse,
            response_example=examples.USER,
        ),
        Endpoint(
            "DELETE",
            f"{PREFIX}/users/me",
            handlers.delete_account,
            "Delete your account",
            description="Deletes the score and the sessions. Score events become anonymous.",
            status=204,
            errors=(
                *examples.PLAYER_AUTH_ERRORS,
                examples.UNAVAILABLE,
                examples.USER_NOT_FOUND,
            ),
            **PLAYER,
        ),
    )


def _password_reset(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            f"{PREFIX}/auth/password/forgot",
            handlers.request_password_reset,
            "Request a password reset by mail",
            description="The response is the same whether an account has this address or not.",
            request=requests.PasswordResetRequest,
            request_example=requests.PasswordResetRequest("ana@example.com"),
            status=202,
            errors=(*AUTH_ROUTE_ERRORS, examples.TOO_MANY_RESETS, examples.RESET_DISABLED),
        ),
        Endpoint(
            "POST",
            f"{PREFIX}/auth/password/reset",
            handlers.reset_password,
            "Set a new password with the token of a mail",
            description="A token works once. All sessions of the player end.",
            request=requests.ResetPasswordRequest,
            request_example=requests.ResetPasswordRequest("kq3vQ0x9", "another long password"),
            status=204,
            errors=(*AUTH_ROUTE_ERRORS, examples.INVALID_RESET_TOKEN, examples.WEAK_PASSWORD),
        ),
    )
