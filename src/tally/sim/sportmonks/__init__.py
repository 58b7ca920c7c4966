"""SportMonks' cricket API v2.0 as an application sees it, fed by match files in the format of Cricsheet.

A file is read (`cricsheet`), told ball by ball (`scorebook`), and rendered as SportMonks does
(`rendering`); a `broadcast` decides how much of it has happened by now, and `world` holds all that
are on the air. Nothing is kept but in memory. `simulator.SportMonks` is the object that tests and
the demo hold.
"""
