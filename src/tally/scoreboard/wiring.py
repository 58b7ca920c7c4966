"""Builds the scoreboard: servers, repositories, services and the API."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from tally.dependencies import Dependencies
from tally.embedded.postgres import open_postgres
from tally.embedded.valkey import ValkeyServer, open_valkey_server
from tally.instance.webhooks.sources import WebhookSource
from tally.kit.backend import Probe
from tally.kit.clock import SystemClock
from tally.kit.endpoints import Api
from tally.kit.jobs import Job
from tally.kit.keyring import Keyring
from tally.kit.operators import protect
from tally.kit.token_issuer import TokenIssuer
from tally.scoreboard.api.admin import AdminHandlers
from tally.scoreboard.api.auth import ScoreboardAuth
from tally.scoreboard.api.boards import BoardHandlers
from tally.scoreboard.api.events import BoardStream, LeaderboardPublisher, LeaderboardStream
from tally.scoreboard.api.handlers import Handlers
from tally.scoreboard.api.rate_limits import RequestLimits
from tally.scoreboard.api.routes import ScoreboardHandlers, scoreboard_api
from tally.scoreboard.board_wiring import build_boards
from tally.scoreboard.jobs import scoreboard_jobs
from tally.scoreboard.repository.accounts import AccountRepository
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.repository.cache import ResponseCache, SessionCache
from tally.scoreboard.repository.channel import UpdateChannel
from tally.scoreboard.repository.database import Database, PoolLimits, open_database_pool
from tally.scoreboard.repository.drift import DriftChecker
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.repository.failed_sign_ins import FailedSignInRepository
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.locks import AdvisoryLocks
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import migrate
from tally.scoreboard.repository.moderation import ModerationRepository
from tally.scoreboard.repository.password_resets import PasswordResetRepository
from tally.scoreboard.repository.rank_bands import RankBandRepository
from tally.scoreboard.repository.rate_limits import RateLimitRepository
from tally.scoreboard.repository.rebuild import LeaderboardRebuilder
from tally.scoreboard.repository.redis_client import InstrumentedRedis, open_redis
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.repository.sessions import PlayerSessionRepository
from tally.scoreboard.service.account_throttle import AccountThrottle
from tally.scoreboard.service.accounts import PlayerAccounts
from tally.scoreboard.service.action_tokens import ActionTokens
from tally.scoreboard.service.actions import Actions
from tally.scoreboard.service.admission import RequestAdmission
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.board_jobs import BoardMaintenance
from tally.scoreboard.service.boards import Boards
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.cache_sync import CacheSync
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.leaderboard_writer import LeaderboardWriter
from tally.scoreboard.service.moderation import Moderation
from tally.scoreboard.service.password_resets import PasswordResets
from tally.scoreboard.service.passwords import ThreadedPasswordHasher
from tally.scoreboard.service.rate_limits import LocalSlidingWindows, SlidingWindowLimiter
from tally.scoreboard.service.redis_breaker import RedisBreaker
from tally.scoreboard.service.retention import Retention
from tally.scoreboard.service.scores import ScoreUpdates
from tally.scoreboard.service.server_stats import ServerStats
from tally.scoreboard.service.services import ScoreboardServices
from tally.scoreboard.service.sessions import AUDIENCE, ISSUER, PlayerSessions
from tally.scoreboard.smtp import SmtpMailer
from tally.settings import Secret, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard:
    """The running backend: its routes, jobs, readiness probes, services and servers."""

    api: Api
    jobs: tuple[Job, ...]
    probes: tuple[Probe, ...]
    services: ScoreboardServices
    database: Database
    redis: InstrumentedRedis
    # None if REDIS_URL names an external server.
    valkey: ValkeyServer | None
    webhook_sources: tuple[WebhookSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Core:
    """What the services share."""

    dependencies: Dependencies
    database: Database
    redis: InstrumentedRedis
    scores: ScoreRepository
    writer: LeaderboardWriter
    broadcaster: LeaderboardBroadcaster
    boards: Boards


@asynccontextmanager
async def open_scoreboard(dependencies: Dependencies) -> AsyncIterator[Scoreboard]:
    """Open the backend, starting embedded servers and migrating the database as needed."""
    settings, clock = dependencies.settings, dependencies.clock
    metrics = StorageMetrics(dependencies.metrics)
    async with AsyncExitStack() as stack:
        dsn, redis_url, valkey = await _open_servers(settings, stack)
        limits = PoolLimits(
            max_connections=settings.scoreboard_database_connections,
            statement_seconds=settings.scoreboard_database_seconds,
        )
        database = await stack.enter_async_context(open_database_pool(dsn, clock, metrics, limits))
        await migrate(database)
        redis_seconds = settings.scoreboard_redis_milliseconds / 1000
        redis = await stack.enter_async_context(
            open_redis(redis_url, clock, metrics, seconds=redis_seconds)
        )
        passwords = await stack.enter_async_context(ThreadedPasswordHasher())
        services = _services(_core(dependencies, database, redis), passwords)
        await stack.enter_async_context(services.broadcaster.running())
        await stack.enter_async_context(services.boards.seasons.broadcaster.running())
        yield Scoreboard(
            api=protect(scoreboard_api(_handlers(dependencies, services)), dependencies.operators),
            jobs=scoreboard_jobs(services, AdvisoryLocks(database)),
            probes=(
                Probe("postgresql", database.ping),
                Probe("redis", redis.ping, is_required=False),
            ),
            services=services,
            database=database,
            redis=redis,
            valkey=valkey,
        )


async def _open_servers(
    settings: Settings, stack: AsyncExitStack
) -> tuple[str, str, ValkeyServer | None]:
    """Return the addresses of PostgreSQL and Redis; start those that are not configured.

    Supervision always uses the system clock.
    """
    database, redis = settings.scoreboard_database_url, settings.scoreboard_redis_url
    clock = SystemClock()
    dsn = (
        database.reveal()
        if database
        else await stack.enter_async_context(open_postgres(settings.data_dir, clock))
    )
    if redis:
        return dsn, redis.reveal(), None
    valkey = await stack.enter_async_context(open_valkey_server(settings.data_dir, clock))
    return dsn, valkey.url, valkey


def _core(dependencies: Dependencies, database: Database, redis: InstrumentedRedis) -> _Core:
    clock, backlog = dependencies.clock, Backlog()
    scores, cache = ScoreRepository(database, clock), LeaderboardCache(redis)
    breaker = RedisBreaker(clock, dependencies.metrics)
    leaderboard = Leaderboard(cache, scores, breaker, backlog)
    broadcaster = LeaderboardBroadcaster(
        leaderboard,
        UpdateChannel(redis, clock),
        breaker,
        LeaderboardPublisher(dependencies.hub),
        clock,
    )
    writer = LeaderboardWriter(
        cache=cache,
        leaderboard=leaderboard,
        listener=broadcaster,
        backlog=backlog,
        breaker=breaker,
    )
    return _Core(
        dependencies=dependencies,
        database=database,
        redis=redis,
        scores=scores,
        writer=writer,
        broadcaster=broadcaster,
        boards=build_boards(dependencies, database, redis, breaker),
    )


def _services(core: _Core, passwords: ThreadedPasswordHasher) -> ScoreboardServices:
    settings, clock = core.dependencies.settings, core.dependencies.clock
    breaker, sessions = core.writer.breaker, _sessions(core)
    windows = RateLimitRepository(core.redis, clock)
    limiter = SlidingWindowLimiter(windows, breaker, LocalSlidingWindows(clock))
    tokens = ActionTokens(
        _keyring(core.dependencies, settings.scoreboard_action_keys, "scoreboard-actions.key")
    )
    return ScoreboardServices(
        accounts=_accounts(core, passwords, sessions),
        sessions=sessions,
        actions=Actions(ActionRepository(core.database), tokens, core.boards, clock),
        scores=ScoreUpdates(
            tokens=tokens,
            scores=core.scores,
            responses=ResponseCache(core.redis),
            writer=core.writer,
            boards=core.boards,
            breaker=breaker,
            clock=clock,
        ),
        leaderboard=core.writer.leaderboard,
        broadcaster=core.broadcaster,
        cache_sync=_cache_sync(core),
        rate_limiter=limiter,
        admission=RequestAdmission(windows, limiter, sessions, core.writer.leaderboard, breaker),
        retention=_retention(core),
        server_stats=ServerStats(core.database, core.redis),
        ranks=RankBandRepository(core.database),
        moderation=Moderation(
            ModerationRepository(core.database),
            core.scores,
            core.writer.leaderboard,
            core.writer,
            core.boards,
            clock,
        ),
        boards=core.boards,
        password_resets=_password_resets(core, passwords, sessions),
        board_maintenance=BoardMaintenance(core.boards.seasons, core.redis, breaker),
    )


def _accounts(
    core: _Core, passwords: ThreadedPasswordHasher, sessions: PlayerSessions
) -> PlayerAccounts:
    return PlayerAccounts(
        accounts=AccountRepository(core.database),
        events=EventRepository(core.database),
        scores=core.scores,
        passwords=passwords,
        throttle=AccountThrottle(
            FailedSignInRepository(core.database),
            core.dependencies.clock,
            core.dependencies.metrics,
        ),
        sessions=sessions,
        responses=ResponseCache(core.redis),
        breaker=core.writer.breaker,
        writer=core.writer,
        boards=core.boards,
        clock=core.dependencies.clock,
    )


def _password_resets(
    core: _Core, passwords: ThreadedPasswordHasher, sessions: PlayerSessions
) -> PasswordResets:
    settings, clock = core.dependencies.settings, core.dependencies.clock
    url = settings.scoreboard_smtp_url
    return PasswordResets(
        resets=PasswordResetRepository(core.database),
        requests=FailedSignInRepository(core.database),
        sessions=sessions,
        passwords=passwords,
        mailer=None if url is None else SmtpMailer(url, settings.scoreboard_mail_from, clock),
        clock=clock,
        lifetime=timedelta(minutes=settings.scoreboard_reset_minutes),
        page_url=settings.scoreboard_reset_page,
    )


def _sessions(core: _Core) -> PlayerSessions:
    dependencies, settings = core.dependencies, core.dependencies.settings
    return PlayerSessions(
        sessions=PlayerSessionRepository(core.database),
        cache=SessionCache(core.redis),
        breaker=core.writer.breaker,
        backlog=core.writer.backlog,
        tokens=TokenIssuer(
            _keyring(dependencies, settings.scoreboard_session_keys, "scoreboard-sessions.key"),
            dependencies.clock,
            issuer=ISSUER,
            audience=AUDIENCE,
        ),
        clock=dependencies.clock,
        access_seconds=settings.scoreboard_access_seconds,
        session_days=settings.scoreboard_session_days,
    )


def _cache_sync(core: _Core) -> CacheSync:
    return CacheSync(
        cache=core.writer.cache,
        rebuilder=LeaderboardRebuilder(core.redis, core.scores),
        drift_checker=DriftChecker(core.writer.cache, core.scores),
        session_cache=SessionCache(core.redis),
        backlog=core.writer.backlog,
        breaker=core.writer.breaker,
        listener=core.broadcaster,
        clock=core.dependencies.clock,
    )


def _retention(core: _Core) -> Retention:
    return Retention(
        sessions=PlayerSessionRepository(core.database),
        events=EventRepository(core.database),
        scores=core.scores,
        actions=ActionRepository(core.database),
        failed_sign_ins=FailedSignInRepository(core.database),
        resets=PasswordResetRepository(core.database),
        clock=core.dependencies.clock,
        events_days=core.dependencies.settings.scoreboard_events_days,
    )


def _handlers(dependencies: Dependencies, services: ScoreboardServices) -> ScoreboardHandlers:
    auth = ScoreboardAuth(
        sessions=services.sessions,
        internal_key=dependencies.secret(
            dependencies.settings.scoreboard_internal_key, "scoreboard-internal.key"
        ),
    )
    limits = RequestLimits(services.rate_limiter, dependencies.settings)
    stream = LeaderboardStream(
        hub=dependencies.hub,
        broadcaster=services.broadcaster,
        streams=dependencies.streams,
        auth=auth,
    )
    return ScoreboardHandlers(
        public=Handlers(
            services=services,
            auth=auth,
            limits=limits,
            cursors=dependencies.cursors,
            readiness=dependencies.readiness,
        ),
        stream=stream,
        admin=AdminHandlers(services.cache_sync, services.moderation),
        boards=BoardHandlers(
            boards=services.boards, auth=auth, limits=limits, cursors=dependencies.cursors
        ),
        board_stream=BoardStream(stream, services.boards.seasons.broadcaster),
    )


def _keyring(dependencies: Dependencies, configured: tuple[Secret, ...], file_name: str) -> Keyring:
    return Keyring(configured or (dependencies.secret(None, file_name),))
