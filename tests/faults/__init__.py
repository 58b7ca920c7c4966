"""Tests of crashes, contention, invalid input, full disks and shared data directories.

Everything is real: killed processes, damaged files, full disks. A module without `test_` in its
name is a child process (`crash_writers`, `contention`, `peer`, `storage_limits`) or a helper:
`child_process` starts and reads children, `audit` checks a database, `linearizability` and
`serializability` check histories, `crash_steps` defines what writers write, `write_groups` controls
group commits.
"""
