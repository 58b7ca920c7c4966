"""What the two servers say of themselves is what they are asked for, and grows with their work."""

from tally.scoreboard.repository.server_stats import read_cache_stats, read_database_stats
from tests.scoreboard.repository.harness import League


async def test_postgresql_tells_its_size_connections_and_work(league: League) -> None:
    before = await read_database_stats(league.database)
    assert before.size > 1_000_000
    assert before.connections >= 1
    assert 0 < before.from_memory <= 1
    # PostgreSQL adds up what its connections did about once a second, or when it is told to.
    await league.database.value("test", "SELECT pg_stat_force_next_flush()")
    after = await read_database_stats(league.database)
    assert after.transactions > before.transactions


async def test_redis_tells_its_memory_keys_and_hits(league: League) -> None:
    before = await read_cache_stats(league.server)
    assert before.program.startswith(("Valkey ", "Redis "))
    assert before.memory > 100_000
    async with league.server.use("test") as client:
        await client.set("vitals", 1)
        await client.get("vitals")
    after = await read_cache_stats(league.server)
    assert after.keys == before.keys + 1
    assert 0 < after.hits <= 1
