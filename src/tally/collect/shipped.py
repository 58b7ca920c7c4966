"""The models that come with the program: one file each in `statues/`, with twelve named parts.

A part is drawn from primitives (`box`, `sphere`, `cylinder`, `cone`, `torus`), each with position,
rotation in degrees, scale and colour; y points up, and a unit is about a metre. `attach` says which
part it hangs on, and at which point.
"""

import json
from decimal import Decimal
from importlib.resources import files

from tally.collect.model import Model, ModelMeta, Part


def shipped_models() -> dict[str, Model]:
    """All of them by id, read from the package."""
    found = sorted(
        entry.name
        for entry in files("tally.collect").joinpath("statues").iterdir()
        if entry.name.endswith(".json")
    )
    models = [
        _model(files("tally.collect").joinpath("statues", name).read_text(encoding="utf-8"))
        for name in found
    ]
    return {model.meta.model_id: model for model in models}


def _model(text: str) -> Model:
    # Exact numbers, as the store wants them.
    told = json.loads(text, parse_float=Decimal)
    parts = tuple(
        Part(part["index"], part["name"], part["description"], tuple(part["mesh"]), part["attach"])
        for part in told["parts"]
    )
    return Model(ModelMeta(told["modelId"], told["name"], told["description"], len(parts)), parts)
