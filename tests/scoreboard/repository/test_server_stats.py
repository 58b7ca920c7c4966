"""The statistics that PostgreSQL and Redis report about themselves."""

from tally.scoreboard.repository.server_stats import read_cache_stats, read_database_stats
from tests.scoreboard.repository.harness import Repositories


async def test_postgresql_reports_size_connections_and_transactions(
    repositories: Repositories,
) -> None:
    before = await read_database_stats(repositories.database)
    assert before.size > 1_000_000
    assert before.connections >= 1
    assert 0 < before.cache_hit_ratio <= 1
    # PostgreSQL updates its statistics about once a second, or on request.
    await repositories.database.value("test", "SELECT pg_stat_force_next_flush()")
    after = await read_database_stats(repositories.database)
    assert after.transactions > before.transactions


async def test_redis_reports_memory_keys_and_hit_ratio(repositories: Repositories) -> None:
    before = await read_cache_stats(repositories.redis)
    assert before.version.startswith(("Valkey ", "Redis "))
    assert before.memory > 100_000
    async with repositories.redis.use("test") as client:
        await client.set("key", 1)
        await client.get("key")
    after = await read_cache_stats(repositories.redis)
    assert after.keys == before.keys + 1
    assert 0 < after.hit_ratio <= 1
