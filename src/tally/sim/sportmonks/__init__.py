"""Simulates SportMonks' cricket API v2.0 from match files in Cricsheet's format.

`cricsheet` reads a file, `scorecard` computes the score after each ball, and `fixtures` renders it
in SportMonks' format. A `playback` tracks how much of a match has happened; `core` holds all
playbacks. All state is in memory. Tests and the demo use `simulator.SportMonksSimulator`.
"""
