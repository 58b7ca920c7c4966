"""The backend put together: servers, repositories and services on the settings, opened and closed as one."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tally.dependencies import SCOREBOARD_ADMIN_KEY, SCOREBOARD_INTERNAL_KEY, Dependencies
from tally.embedded.postgres import open_postgres
from tally.embedded.valkey import ValkeyServer, open_valkey_server
from tally.kit.backend import Probe
from tally.kit.clock import SystemClock
from tally.kit.endpoints import Api
from tally.kit.jobs import Job
from tally.kit.keyring import Keyring
from tally.kit.token_issuer import TokenIssuer
from tally.scoreboard.api.handlers import Handlers
from tally.scoreboard.api.routes import scoreboard_api
from tally.scoreboard.jobs import scoreboard_jobs
from tally.scoreboard.repository.accounts import AccountRepository
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.repository.cache import ResponseCache, SessionCache
from tally.scoreboard.repository.channel import UpdateChannel
from tally.scoreboard.repository.database import Database, PoolLimits, open_database_pool
from tally.scoreboard.repository.drift import DriftChecker
from tally.scoreboard.repository.events import EventRepository
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.locks import AdvisoryLocks
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import migrate
from tally.scoreboard.repository.rate_limits import RateLimitRepository
from tally.scoreboard.repository.rebuild import LeaderboardRebuilder
from tally.scoreboard.repository.redis_client import InstrumentedRedis, open_redis
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.repository.sessions import PlayerSessionRepository
from tally.scoreboard.repository.stream_registry import StreamRegistry
from tally.scoreboard.service.accounts import PlayerAccounts
from tally.scoreboard.service.action_tokens import ActionTokens
from tally.scoreboard.service.actions import Actions
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.cache_sync import CacheSync
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.passwords import ThreadedPasswordHasher
from tally.scoreboard.service.rank_batcher import RankBatcher
from tally.scoreboard.service.rate_limits import LocalSlidingWindows, RateLimiter
from tally.scoreboard.service.redis_breaker import RedisBreaker
from tally.scoreboard.service.retention import Retention
from tally.scoreboard.service.scores import ScoreUpdates
from tally.scoreboard.service.sessions import AUDIENCE, ISSUER, PlayerSessions
from tally.scoreboard.service.stream_slots import StreamSlots
from tally.settings import Secret, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard:
    """The backend, open: its routes, its jobs, and the parts that tests look into."""

    api: Api
    jobs: tuple[Job, ...]
    probes: tuple[Probe, ...]
    database: Database
    redis: InstrumentedRedis
    # The embedded one, where no address was dependencies.
    valkey: ValkeyServer | None
    handlers: Handlers
    catch_up: CacheSync
    retention: Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """What the services stand on."""

    dependencies: Dependencies
    database: Database
    redis: InstrumentedRedis
    scores: ScoreRepository
    board: LeaderboardCache
    guard: RedisBreaker
    backlog: Backlog
    leaderboard: Leaderboard
    broadcast: LeaderboardBroadcaster


@asynccontextmanager
async def open_scoreboard(dependencies: Dependencies) -> AsyncIterator[Scoreboard]:
    """The backend for as long as this lasts, on a database that is up to date."""
    settings, clock, figures = (
        dependencies.settings,
        dependencies.clock,
        StorageMetrics(dependencies.metrics),
    )
    async with AsyncExitStack() as stack:
        dsn, redis_url, valkey = await _servers(settings, stack)
        limits = PoolLimits(
            most=settings.scoreboard_database_connections,
            statement_seconds=settings.scoreboard_database_seconds,
        )
        database = await stack.enter_async_context(open_database_pool(dsn, clock, figures, limits))
        await migrate(database)
        redis = await stack.enter_async_context(
            open_redis(
                redis_url, clock, figures, seconds=settings.scoreboard_redis_milliseconds / 1000
            )
        )
        base = _base(dependencies, database, redis)
        passwords = await stack.enter_async_context(ThreadedPasswordHasher())
        await stack.enter_async_context(base.broadcast.running())
        yield _assembled(base, passwords, valkey)


async def _servers(
    settings: Settings, stack: AsyncExitStack
) -> tuple[str, str, ValkeyServer | None]:
    """The addresses of PostgreSQL and Redis; those that are not dependencies are started here, and watched by the real time."""
    database, redis = settings.scoreboard_database_url, settings.scoreboard_redis_url
    watch = SystemClock()
    dsn = (
        database.reveal()
        if database
        else await stack.enter_async_context(open_postgres(settings.data_dir, watch))
    )
    if redis:
        return dsn, redis.reveal(), None
    valkey = await stack.enter_async_context(open_valkey_server(settings.data_dir, watch))
    return dsn, valkey.url, valkey


def _base(dependencies: Dependencies, database: Database, redis: InstrumentedRedis) -> _Base:
    clock, backlog = dependencies.clock, Backlog()
    scores, board = ScoreRepository(database, clock), LeaderboardCache(redis)
    guard = RedisBreaker(clock, dependencies.metrics)
    leaderboard = Leaderboard(board, scores, RankBatcher(scores), guard, backlog)
    return _Base(
        dependencies=dependencies,
        database=database,
        redis=redis,
        scores=scores,
        board=board,
        guard=guard,
        backlog=backlog,
        leaderboard=leaderboard,
        broadcast=LeaderboardBroadcaster(
            leaderboard, UpdateChannel(redis, clock), guard, dependencies.hub, clock
        ),
    )


def _assembled(
    base: _Base, passwords: ThreadedPasswordHasher, valkey: ValkeyServer | None
) -> Scoreboard:
    dependencies, database = base.dependencies, base.database
    catch_up = CacheSync(
        board=base.board,
        builder=LeaderboardRebuilder(base.redis, base.scores),
        check=DriftChecker(base.board, base.scores),
        sessions=SessionCache(base.redis),
        backlog=base.backlog,
        guard=base.guard,
        broadcast=base.broadcast,
        clock=dependencies.clock,
    )
    retention = Retention(
        sessions=PlayerSessionRepository(database),
        events=EventRepository(database),
        scores=base.scores,
        actions=ActionRepository(database),
        clock=dependencies.clock,
        events_days=dependencies.settings.scoreboard_events_days,
    )
    handlers = _handlers(base, passwords, catch_up)
    return Scoreboard(
        api=scoreboard_api(handlers),
        jobs=scoreboard_jobs(catch_up, handlers.slots, retention, AdvisoryLocks(database)),
        probes=(
            Probe("postgresql", database.ping),
            Probe("redis", base.redis.ping, is_required=False),
        ),
        database=database,
        redis=base.redis,
        valkey=valkey,
        handlers=handlers,
        catch_up=catch_up,
        retention=retention,
    )


def _handlers(base: _Base, passwords: ThreadedPasswordHasher, catch_up: CacheSync) -> Handlers:
    dependencies, settings, sessions = (
        base.dependencies,
        base.dependencies.settings,
        _sessions(base),
    )
    tokens = ActionTokens(
        _keyring(dependencies, settings.scoreboard_action_keys, "scoreboard-actions.key")
    )
    return Handlers(
        settings=settings,
        accounts=_accounts(base, passwords, sessions),
        sessions=sessions,
        actions=Actions(ActionRepository(base.database), tokens, dependencies.clock),
        scores=_score_updates(base, tokens),
        leaderboard=base.leaderboard,
        broadcast=base.broadcast,
        catch_up=catch_up,
        limits=RateLimiter(
            RateLimitRepository(base.redis, dependencies.clock),
            base.guard,
            LocalSlidingWindows(dependencies.clock),
        ),
        slots=StreamSlots(
            StreamRegistry(base.redis),
            base.guard,
            per_user=settings.scoreboard_streams_per_user,
            per_address=settings.scoreboard_streams_per_address,
        ),
        cursors=dependencies.cursors,
        hub=dependencies.hub,
        internal_key=dependencies.key(SCOREBOARD_INTERNAL_KEY),
        admin_key=dependencies.key(SCOREBOARD_ADMIN_KEY),
    )


def _sessions(base: _Base) -> PlayerSessions:
    dependencies, settings = base.dependencies, base.dependencies.settings
    return PlayerSessions(
        sessions=PlayerSessionRepository(base.database),
        cache=SessionCache(base.redis),
        guard=base.guard,
        backlog=base.backlog,
        tokens=TokenIssuer(
            _keyring(dependencies, settings.scoreboard_session_keys, "scoreboard-sessions.key"),
            dependencies.clock,
            issuer=ISSUER,
            audience=AUDIENCE,
        ),
        clock=dependencies.clock,
        access_seconds=dependencies.settings.scoreboard_access_seconds,
        session_days=dependencies.settings.scoreboard_session_days,
    )


def _accounts(
    base: _Base, passwords: ThreadedPasswordHasher, sessions: PlayerSessions
) -> PlayerAccounts:
    return PlayerAccounts(
        accounts=AccountRepository(base.database),
        events=EventRepository(base.database),
        board=base.board,
        passwords=passwords,
        sessions=sessions,
        leaderboard=base.leaderboard,
        broadcast=base.broadcast,
        backlog=base.backlog,
        guard=base.guard,
        clock=base.dependencies.clock,
    )


def _score_updates(base: _Base, tokens: ActionTokens) -> ScoreUpdates:
    return ScoreUpdates(
        tokens=tokens,
        scores=base.scores,
        board=base.board,
        answers=ResponseCache(base.redis),
        leaderboard=base.leaderboard,
        broadcast=base.broadcast,
        backlog=base.backlog,
        guard=base.guard,
        clock=base.dependencies.clock,
    )


def _keyring(dependencies: Dependencies, configured: tuple[Secret, ...], file_name: str) -> Keyring:
    return Keyring(configured or (dependencies.secret(None, file_name),))
