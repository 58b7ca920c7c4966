"""Backup and restore of a data directory: the embedded store, the embedded PostgreSQL and the keys.

`create` writes a backup to one file while the server runs, and `restore` builds a data directory
from it. `archive` is the file format, `members` lists the files that it may contain, `tables` has
the rows of PostgreSQL, and `dump` reads archives of the first format. A backup contains everything
acknowledged before it began. Back up DynamoDB and an external PostgreSQL with their own tools.
Redis and Valkey are caches and need no backup.
"""
