"""The console: a web page for whoever keeps Tally running, and for whoever looks at it for the first time.

It is served by the same process under `/console`, and asks the backends' services directly. Pages
are plain functions, one file for each; `shell` is what stands around them, `desk` is all that they
may look at, and `mount` puts them into the app. Loading it takes a moment, so only a program that
shows the console imports it.
"""
