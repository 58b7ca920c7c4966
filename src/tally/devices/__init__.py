"""Devices: readings of boards in the field, stored once each.

Boards register and post what they measured, with an API key; they may retry for hours, and nothing
is stored twice. Kept are four locked tables: devices, their readings, the batch ids seen in the
last thirty days, and API keys. Operators list devices, read and export readings, and watch them
arrive, with a bearer token.
"""
