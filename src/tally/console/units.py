"""The units of sensors, from the ends of their names, such as `soil_moisture_pct`."""

from typing import Final

# The end of a sensor's name, after "_", and its unit.
UNITS: Final = {
    "c": "°C",
    "f": "°F",
    "pct": "%",
    "percent": "%",
    "hpa": "hPa",
    "pa": "Pa",
    "kpa": "kPa",
    "lux": "lx",
    "lx": "lx",
    "ppm": "ppm",
    "ppb": "ppb",
    "v": "V",
    "mv": "mV",
    "ma": "mA",
    "w": "W",
    "dbm": "dBm",
    "m": "m",
    "cm": "cm",
    "mm": "mm",
    "s": "s",
    "ms": "ms",
}


def sensor_unit(name: str) -> str:
    """Return the unit of a sensor, empty if its name does not end with one."""
    _, _, end = name.rpartition("_")
    return UNITS.get(end.lower(), "")
