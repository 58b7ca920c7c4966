"""Virtual ESP32 boards in a greenhouse that measure, lose their network, reboot, and post what they measured to a server.

A `Board` is the firmware: its sensors, its own clock, its buffer and its patience. It speaks HTTP
through an `Uplink`. A `Fleet` runs many of them, and `tally sim boards` shows how they do.
"""
