"""Tests of crashes, power loss, contention, invalid input, full disks and shared data directories.

Everything is real: killed processes, damaged files, full disks. Only power failures are replayed,
from recorded system calls. A module without `test_` in its name is a child process
(`crash_writers`, `power_loss_program`, `contention`, `peer`, `storage_limits`) or a helper:
`child_process` starts and reads children, `audit` and `recovery` check a database,
`linearizability` and `serializability` check histories, `crash_steps` and `crash_checks` define
what writers write and what must be found, `write_groups` controls group commits, `system_calls`
records a program, `disk_model` defines what a disk keeps, and `power_loss` replays crashes.
"""
