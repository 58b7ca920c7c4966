"""The model catalog: bundled models, written to the table and read from there.

`statues/` contains one JSON file per model, with twelve named parts. A part consists of primitives
(`box`, `sphere`, `cylinder`, `cone`, `torus`), each with position, rotation in degrees, scale and
colour. The y axis points up, and a unit is about a metre. `attach` names the part that it is
attached to, and the point.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from typing import Final

from tally.collect.model.records import Model, ModelMeta, Part
from tally.collect.repository.main import CollectRepository
from tally.errors import NotFound
from tally.kit.ttl_cache import TTLCache

MODEL_CACHE_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """Lists and reads models."""

    repository: CollectRepository
    bundled: Mapping[str, Model]
    cache: TTLCache[str, Model]

    async def write_bundled(self) -> None:
        """Write all bundled models to the table. Idempotent."""
        for model in self.bundled.values():
            await self.repository.put_model(model)

    async def all(self) -> list[ModelMeta]:
        found = await self.repository.metas(list(self.bundled))
        if len(found) < len(self.bundled):
            await self.write_bundled()
            found = await self.repository.metas(list(self.bundled))
        return found

    async def get(self, model_id: str) -> Model:
        """Return a model with its parts. Writes a bundled model that the table lacks."""
        model = self.cache.get(model_id)
        if model is None:
            model = await self._read(model_id)
            self.cache.put(model_id, model)
        return model

    async def _read(self, model_id: str) -> Model:
        bundled = self.bundled.get(model_id)
        # Only ids of bundled models become part of a key.
        found = None if bundled is None else await self.repository.model(model_id)
        if found is not None:
            return found
        if bundled is None:
            raise NotFound("The model does not exist", code="model_not_found")
        await self.repository.put_model(bundled)
        return bundled


def bundled_models() -> dict[str, Model]:
    """Load the models in the package, by id."""
    folder = files("tally.collect.service").joinpath("statues")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    models = [_parse_model(folder.joinpath(name).read_text(encoding="utf-8")) for name in names]
    return {model.meta.model_id: model for model in models}


def _parse_model(text: str) -> Model:
    content = json.loads(text, parse_float=Decimal)  # the store requires exact numbers
    parts = tuple(
        Part(part["index"], part["name"], part["description"], tuple(part["mesh"]), part["attach"])
        for part in content["parts"]
    )
    meta = ModelMeta(
        content["modelId"],
        content["name"],
        content["description"],
        len(parts),
        content.get("countsManual", True),
    )
    return Model(meta, parts)
