"""Virtual ESP32 boards in a greenhouse that measure, go offline, restart and post readings.

`board` is the firmware: sensors, clock, buffer and retries. `devices_client` speaks HTTP, `fleet`
runs many boards, and `tally sim boards` displays them.
"""
