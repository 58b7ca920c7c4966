"""The access patterns of sessions, states, claims and audit events, on every engine."""

import asyncio
from dataclasses import replace

import pytest

from tally.collect.model.records import AuditEvent, BrowserSession, PendingState
from tally.collect.repository.audit import AuditRepository
from tally.collect.repository.idempotency import Claim, IdempotencyRepository
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.sessions import BrowserSessionRepository
from tally.collect.repository.table import COMMIT_COLLECT
from tally.store.access import GetItem, Query, access, param
from tally.store.api import Engine
from tally.store.catalogue import Catalogue, check_repositories
from tally.store.errors import AccessViolation
from tally.store.expressions import F, exists
from tally.store.store import Store
from tests.collect import factories

REPOSITORIES = (CollectRepository, BrowserSessionRepository, AuditRepository, IdempotencyRepository)


# In the future, because external services expire items by their own clock.
NOW = 4_000_000_000


def session(user: str, expires_at: int = NOW + 1000) -> BrowserSession:
    return BrowserSession(factories.new_user_id(), user, factories.TIME, expires_at)


async def test_an_expired_session_is_not_found(
    sessions: BrowserSessionRepository,
) -> None:
    """The read checks the expiry, whether or not TTL has deleted the item."""
    mine = session("ann")
    await sessions.create(mine)
    assert await sessions.find(mine.session_hash, NOW + 999) == mine
    assert await sessions.find(mine.session_hash, NOW + 1000) is None


async def test_all_sessions_of_a_user_are_deleted(sessions: BrowserSessionRepository) -> None:
    """Sessions of other users are kept."""
    ann, bob = factories.new_user_id(), factories.new_user_id()
    of_ann, of_bob = [session(ann) for _ in range(30)], session(bob)
    for new_session in (*of_ann, of_bob):
        await sessions.create(new_session)
    assert await sessions.delete_batch(ann) == 30
    assert await sessions.delete_batch(ann) == 0
    assert [await sessions.find(deleted.session_hash, 1) for deleted in of_ann] == [None] * 30
    assert await sessions.find(of_bob.session_hash, 1) == of_bob


async def test_a_state_is_valid_once_in_its_browser_until_it_expires(
    sessions: BrowserSessionRepository,
) -> None:
    """One of twenty concurrent uses succeeds. Failed uses do not consume it."""
    pending = PendingState(
        factories.new_user_id(), "login", "browser", NOW + 600, "/here", "encrypted"
    )
    await sessions.begin(pending)
    for purpose, browser, now in (
        ("strava", "browser", NOW),
        ("login", "other", NOW),
        ("login", "browser", NOW + 600),
    ):
        assert await sessions.use(pending.state, purpose, browser, now) is None
    found = await asyncio.gather(
        *(sessions.use(pending.state, "login", "browser", NOW + 599) for _ in range(20))
    )
    assert [state for state in found if state is not None] == [pending]


async def test_a_claim_is_exclusive_until_its_lease_expires(
    idempotency: IdempotencyRepository,
) -> None:
    """One of many concurrent claims succeeds, and only the holder can finish."""
    key = factories.new_user_id()
    tokens = [f"worker-{number}" for number in range(10)]
    claims = await asyncio.gather(
        *(idempotency.claim(key, token, NOW + 100, 60) for token in tokens)
    )
    assert sorted(claim.value for claim in claims) == ["mine", *["taken"] * 9]
    first = tokens[claims.index(Claim.MINE)]
    assert await idempotency.claim(key, "late", NOW + 160, 60) is Claim.MINE
    assert not await idempotency.finish(key, first, NOW + 161)
    await idempotency.release(key, first)
    assert await idempotency.claim(key, "again", NOW + 161, 60) is Claim.TAKEN
    assert await idempotency.finish(key, "late", NOW + 162)
    await idempotency.release(key, "late")
    assert await idempotency.claim(key, "again", NOW + 10_000, 60) is Claim.DONE


async def test_a_released_claim_is_available_immediately(
    idempotency: IdempotencyRepository,
) -> None:
    """Without waiting for the lease."""
    key = factories.new_user_id()
    assert await idempotency.claim(key, "a", NOW + 100, 60) is Claim.MINE
    await idempotency.release(key, "a")
    assert await idempotency.claim(key, "b", NOW + 100, 60) is Claim.MINE


async def test_audit_events_are_found_by_all_three_keys(audit: AuditRepository) -> None:
    """Newest first, in pages. Events of one request do not overwrite each other."""
    name, correlation, kind = (
        factories.new_user_id(),
        factories.new_user_id(),
        factories.new_user_id(),
    )
    first = AuditEvent(kind, name, NOW, "request", correlation, {"part": 1}, "abc")
    assert await audit.append(first)
    second = replace(first, facts={"part": 2})
    assert not await audit.append(second)
    assert await audit.append(second, 2)
    later = replace(first, epoch=first.epoch + 60)
    assert await audit.append(later)
    expected = [later, second, first]
    page, start = await audit.by_user(name, 2, None)
    assert page == expected[:2]
    assert await audit.by_user(name, 2, start) == (expected[2:], None)
    assert (await audit.by_correlation(correlation, 10, None))[0] == expected
    assert (await audit.by_event(kind, "209610", 10, None))[0] == expected
    assert (await audit.by_event(kind, "209611", 10, None))[0] == []


_OF_MODEL = F("PK") == f"MODEL#{param('modelId')}"


class ViolatingRepository:
    """A repository whose methods each violate a rule of the seed."""

    tables = (COMMIT_COLLECT,)

    def __init__(self, store: Store) -> None:
        self.store = store

    @access("Read all", Query(where=_OF_MODEL), table=COMMIT_COLLECT)
    async def scan(self) -> None:
        await self.store.scan(COMMIT_COLLECT)

    @access("Filter all", Query(where=_OF_MODEL), table=COMMIT_COLLECT)
    async def filter_without_key(self) -> None:
        await self.store.query(COMMIT_COLLECT, F("sportType") == "Ride")

    @access("Read across partitions", Query(where=_OF_MODEL), table=COMMIT_COLLECT)
    async def cross_partitions(self) -> None:
        await self.store.query(COMMIT_COLLECT, F("PK").begins_with("USER#"))

    @access("Read endless pages", Query(where=_OF_MODEL), table=COMMIT_COLLECT)
    async def endless_pages(self) -> None:
        page = await self.store.query(COMMIT_COLLECT, F("PK") == "MODEL#none", limit=1)
        await self.store.query(
            COMMIT_COLLECT,
            F("PK") == "MODEL#none",
            limit=1,
            start=page.next or {"PK": "MODEL#none", "SK": "0"},
        )

    @access("Read all unbounded", Query(where=_OF_MODEL), table=COMMIT_COLLECT)
    async def unbounded_items(self) -> None:
        async for _ in self.store.items(COMMIT_COLLECT, F("PK") == "MODEL#none"):
            pass

    @access(
        "Touch another table",
        GetItem(key={"PK": param("PK"), "SK": param("SK")}),
        table=COMMIT_COLLECT,
    )
    async def unconditional_write(self) -> None:
        await self.store.update(
            COMMIT_COLLECT, {"PK": "a", "SK": "b"}, F("x").set(1), condition=exists("PK")
        )


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("scan", AccessViolation),
        ("filter_without_key", AccessViolation),
        ("cross_partitions", AccessViolation),
        ("endless_pages", AccessViolation),
        ("unbounded_items", AccessViolation),
        ("unconditional_write", AccessViolation),
    ],
)
async def test_the_store_rejects_access_violations(
    engine: Engine, method: str, error: type[Exception]
) -> None:
    """Before anything is read."""
    with pytest.raises(error):
        await getattr(ViolatingRepository(Store(engine)), method)()


async def test_no_repository_declares_a_scan() -> None:
    """And all declarations are valid."""
    catalogue = Catalogue({"collect": REPOSITORIES})
    check_repositories(catalogue)
    operations = {use.name for entry in catalogue.entries() for use in entry.pattern.operation.uses}
    assert "Scan" not in operations
    assert {"Query", "TransactWriteItems", "BatchWriteItem", "BatchGetItem"} <= operations
