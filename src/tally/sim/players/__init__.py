"""Virtual players and their game server: they register, play, replay tokens and try to cheat.

All traffic goes over HTTP to a real scoreboard. The players count violations: a replayed token must
get the same response, and a tampered token must be rejected.
"""
