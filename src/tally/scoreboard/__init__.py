"""Scoreboard: a live leaderboard whose scores are verified by the game server.

Game servers report completed actions and receive signed action tokens. Players exchange a token for
points, exactly once, and subscribers see the leaderboard change over SSE. PostgreSQL stores
accounts, sessions, scores and their history and is the source of truth. Redis serves leaderboard
reads, rate limits and cached responses; the backend keeps working without it.
"""
