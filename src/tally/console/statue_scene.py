"""A model of collect's in three dimensions: the parts that were earned stand there, the others are outlines."""

import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from nicegui import ui

from tally.collect.model import Model

EARNED: Final = 1.0
WANTED: Final = 0.22
# At least so wide is a model taken to be, with its arms and shadows.
WIDTH: Final = 2.6
GREY: Final = "#8a938f"


def draw(scene: ui.scene, model: Model, earned: Collection[int]) -> None:
    """Every part of the model; y points up in its description, z does in the scene."""
    with scene.group() as upright:
        upright.rotate(math.pi / 2, 0, 0)
        for part in model.parts:
            for primitive in part.mesh:
                _put(scene, primitive, is_earned=part.index in earned)


def look_at(scene: ui.scene, model: Model) -> None:
    """Put the camera where the whole model is seen, from a little above."""
    ends = [
        (_three(each["position"])[1], _three(each["scale"])[1])
        for part in model.parts
        for each in part.mesh
    ]
    top, bottom = (
        max(middle + half for middle, half in ends),
        min(middle - half for middle, half in ends),
    )
    middle, away = (top + bottom) / 2, 0.95 * max(top - bottom, WIDTH)
    scene.move_camera(
        x=0.6 * away,
        y=-0.8 * away,
        z=middle + 0.25 * away,
        look_at_x=0,
        look_at_y=0,
        look_at_z=middle,
        duration=0,
    )


def _put(scene: ui.scene, primitive: Mapping[str, Any], *, is_earned: bool) -> None:
    placed = _shape(scene, str(primitive["shape"]), is_outline=not is_earned)
    placed.move(*_three(primitive["position"]))
    placed.rotate(*(math.radians(angle) for angle in _three(primitive["rotation"])))
    placed.scale(*_three(primitive["scale"]))
    placed.material(
        str(primitive["colour"]) if is_earned else GREY, EARNED if is_earned else WANTED
    )


def _shape(scene: ui.scene, shape: str, *, is_outline: bool) -> Any:
    if shape == "sphere":
        return scene.sphere(1, 16, 12, wireframe=is_outline)
    if shape == "cylinder":
        return scene.cylinder(1, 1, 1, 24, 1, wireframe=is_outline)
    if shape == "cone":
        return scene.cylinder(0.001, 1, 1, 24, 1, wireframe=is_outline)
    if shape == "torus":
        return scene.ring(0.75, 1, 24, 1, wireframe=is_outline)
    return scene.box(1, 1, 1, wireframe=is_outline)


def _three(values: Any) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z
