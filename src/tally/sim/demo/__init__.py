"""The demo: every outside service simulated beside the server, and made-up people who use it.

`outside` starts the services and says which settings lead there, `people` lets boards, athletes,
players and phones live, `programme` keeps matches on the air, and `kept` remembers across restarts
who they are.
"""
