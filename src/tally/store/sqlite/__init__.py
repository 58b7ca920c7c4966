"""The embedded engine: SQLite with DynamoDB's semantics.

Read `engine.py` first, then `writer.py` and `layout.py`.
"""

from tally.store.sqlite.engine import SqliteEngine, open_sqlite

__all__ = ["SqliteEngine", "open_sqlite"]
