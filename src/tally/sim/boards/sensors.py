"""The sensors of a board: a day in a greenhouse, with noise and occasional sensor failures."""

import math
import random
from dataclasses import dataclass
from typing import Final, TypeAlias

DAY_MS: Final = 86_400_000
SENSOR_NAMES: Final = ("bme280", "ds18b20", "soil_moisture")
FAILURE_PROBABILITY: Final = 0.001

Values: TypeAlias = dict[str, float]
Statuses: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True)
class GreenhouseSensors:
    """The sensors of one board. Temperature, moisture and pressure vary with its location."""

    rng: random.Random
    warmth: float
    dryness: float
    pressure: float

    @classmethod
    def at_random_location(cls, rng: random.Random) -> "GreenhouseSensors":
        return cls(rng, rng.gauss(21, 2), rng.gauss(0, 5), rng.gauss(1013, 6))

    def measure(self, time_ms: int) -> tuple[Values, Statuses]:
        """Values and statuses at a time; a failed sensor has the status `error` and no value."""
        noise = self.rng.gauss
        day = time_ms % DAY_MS / DAY_MS
        sun = math.sin(2 * math.pi * (day - 9 / 24))  # warmest at 15:00
        temperature = self.warmth + 6 * sun
        # Watered at 06:00; loses 20 points within a day.
        soil = 70 - self.dryness - 20 * ((day - 6 / 24) % 1)
        measured = {
            "bme280": {
                "bme280_temp_c": round(temperature + noise(0, 0.2), 2),
                "humidity_pct": round(_percent(55 - self.dryness - 15 * sun + noise(0, 0.8)), 1),
                "pressure_hpa": round(
                    self.pressure + 3 * math.sin(time_ms / (5 * DAY_MS)) + noise(0, 0.1), 2
                ),
            },
            "ds18b20": {"ds18b20_temp_c": round(temperature - 0.7 + noise(0, 0.1), 2)},
            "soil_moisture": {"soil_moisture_pct": round(_percent(soil + noise(0, 0.3)), 1)},
        }
        failed = {name for name in SENSOR_NAMES if self.rng.random() < FAILURE_PROBABILITY}
        values = {
            key: value
            for name, parts in measured.items()
            if name not in failed
            for key, value in parts.items()
        }
        return values, {name: "error" if name in failed else "ok" for name in SENSOR_NAMES}


def _percent(value: float) -> float:
    return min(100.0, max(0.0, value))
