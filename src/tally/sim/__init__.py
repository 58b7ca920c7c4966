"""The outside world on real sockets: services that Tally calls, and people and things that call Tally.

Each simulator behaves like the service it stands for, faults included, and is driven either by the
Python object in the same process or, from elsewhere, by its small control API under `/_sim/`. The
demo and the tests use them; production does not.
"""
