"""Simulators of external services on real sockets, and virtual clients that call Tally.

A simulator behaves like the service it replaces, including its limits and errors, and injects
faults on request. Drive it through the Python object in the same process or through its control
API under `/_sim/`. The demo and the tests use the simulators; production does not.
"""
