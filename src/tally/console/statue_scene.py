"""Renders a collect model in 3D: earned parts are solid, the others are outlines."""

import math
from collections.abc import Collection, Mapping
from typing import Any, Final

from nicegui import ui

from tally.collect.model.records import Model

EARNED: Final = 1.0
MISSING: Final = 0.22
# Minimum width of a model, including arms and shadows.
MIN_WIDTH: Final = 2.6
GREY: Final = "#8a938f"


def draw(scene: ui.scene, model: Model, earned: Collection[int]) -> None:
    """Draw every part. The model's y axis points up; the scene's z axis does."""
    with scene.group() as upright:
        upright.rotate(math.pi / 2, 0, 0)
        for part in model.parts:
            for primitive in part.mesh:
                _draw_primitive(scene, primitive, is_earned=part.index in earned)


def aim_camera(scene: ui.scene, model: Model) -> None:
    """Position the camera so that the whole model is visible from slightly above."""
    extents = [
        (_vector(primitive["position"])[1], _vector(primitive["scale"])[1])
        for part in model.parts
        for primitive in part.mesh
    ]
    top, bottom = (
        max(middle + half for middle, half in extents),
        min(middle - half for middle, half in extents),
    )
    middle, distance = (top + bottom) / 2, 0.95 * max(top - bottom, MIN_WIDTH)
    scene.move_camera(
        x=0.6 * distance,
        y=-0.8 * distance,
        z=middle + 0.25 * distance,
        look_at_x=0,
        look_at_y=0,
        look_at_z=middle,
        duration=0,
    )


def _draw_primitive(scene: ui.scene, primitive: Mapping[str, Any], *, is_earned: bool) -> None:
    element = _shape(scene, str(primitive["shape"]), is_outline=not is_earned)
    element.move(*_vector(primitive["position"]))
    element.rotate(*(math.radians(angle) for angle in _vector(primitive["rotation"])))
    element.scale(*_vector(primitive["scale"]))
    element.material(
        str(primitive["colour"]) if is_earned else GREY, EARNED if is_earned else MISSING
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


def _vector(values: Any) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z
