"""Benchmarks: `make bench`, or `python -m bench [--json FILE] [--only WORD]`.

Machines are noisy, so no number is measured alone: each alternates with a baseline in short rounds
of the same run, and the ratio is the result.
"""
