"""The name of PostgreSQL's cluster is on disk before the server starts."""

from pathlib import Path

from tests.faults.child_process import started
from tests.faults.power_loss import is_sync, path_of
from tests.faults.system_calls import need_recorder


async def test_the_name_of_a_new_cluster_is_synced_before_the_server_starts(tmp_path: Path) -> None:
    """Otherwise a power failure could leave it as a draft, which the next start deletes.

    The server syncs its own files as soon as it starts.
    """
    recorder = need_recorder(tmp_path, "rename,fsync")
    data = tmp_path / "data"
    arguments = ("power_loss_program", "postgres", str(data))
    async with started(*arguments, before=recorder.prefix) as program:
        assert await program.rest() == ["did start"], program.stderr_text()
        assert await program.end() == 0
    calls = recorder.read(data)
    (renamed,) = [
        at
        for at, call in enumerate(calls)
        if call.name == "rename" and call.arguments[0].data.endswith(b"/cluster.new")
    ]
    syncs = [path_of(call) for call in calls[renamed:] if is_sync(call)]
    assert syncs[0] == str(data / "postgres")
    assert len(syncs) > 2  # those of the server
