"""Storage of the scoreboard: one file per table in PostgreSQL or kind of key in Redis.

Driver errors are translated to domain errors here.
"""
