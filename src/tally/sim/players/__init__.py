"""Made-up players and the game server that vouches for them: they sign up, play, send tokens twice, and try to cheat.

Everything goes over HTTP to a real scoreboard, here or elsewhere. What the scoreboard promises is
counted as it is kept: a token that is sent again must get the same answer, and one that was
tampered with must be refused.
"""
