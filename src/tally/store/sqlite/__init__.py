"""The embedded engine: SQLite with DynamoDB's semantics.

Start with `engine.py`, then read `writer_thread.py` and `layout.py`.
"""

from tally.store.sqlite.engine import SqliteEngine, open_sqlite

__all__ = ["SqliteEngine", "open_sqlite"]
