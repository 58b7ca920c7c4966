"""Benchmarks: `make bench`, or `python -m bench [--json FILE] [--only WORD]`.

Machines are noisy, so no figure stands alone: each is measured beside a peer or the raw limit, in
short rounds that take turns in one run, and what counts is the ratio.
"""
