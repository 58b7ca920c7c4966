"""Devices: sensor readings from boards in the field, each stored exactly once.

Boards register and post readings with an API key. They may retry for hours without creating
duplicates. Four locked tables hold devices, readings, the batch ids of the last 30 days, and API
keys. Operators list devices, query and export readings, and subscribe to new readings over SSE,
with a bearer token.
"""
