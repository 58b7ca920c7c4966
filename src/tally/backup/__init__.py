"""Back-up and restore of a data directory: the embedded store, the embedded PostgreSQL, and the keys.

`take` writes one file while the server runs, `put_back` makes a data directory of it, `archive` is
the file itself: a tar with a list of what is in it and the checksum of each. Whatever was
acknowledged before a back-up began is in it. What lives elsewhere, in DynamoDB or a PostgreSQL of
one's own, is backed up there; Redis and Valkey are caches, and filled anew.
"""
