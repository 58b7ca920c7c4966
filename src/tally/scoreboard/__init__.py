"""Scoreboard: a live leaderboard that cannot be cheated.

A game server vouches for a finished action with a signed token; the player trades it for points,
once; everyone who watches the board sees it move. PostgreSQL keeps people, scores, sessions and the
history of every change, and is the truth. Redis keeps the board in order, counts requests and
remembers answers, and may vanish at any moment.
"""
