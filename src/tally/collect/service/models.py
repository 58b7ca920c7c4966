"""Models: those that are shipped, written into the table at the start, and read from there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tally.collect.model import Model, ModelMeta
from tally.collect.repository.main import CollectRepository
from tally.errors import NotFound
from tally.kit.ttl_cache import TTLCache

KNOWN_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class ModelShelf:
    """`known` holds models that were read a moment ago."""

    main: CollectRepository
    shipped: Mapping[str, Model]
    known: TTLCache[str, Model]

    async def stock(self) -> None:
        """Write all shipped models; the same again changes nothing."""
        for model in self.shipped.values():
            await self.main.put_model(model)

    async def all(self) -> list[ModelMeta]:
        found = await self.main.metas(list(self.shipped))
        if len(found) < len(self.shipped):
            await self.stock()
            found = await self.main.metas(list(self.shipped))
        return found

    async def get(self, model_id: str) -> Model:
        """The model with its parts; a shipped one that is not in the table yet is put there."""
        model = self.known.get(model_id)
        if model is None:
            model = await self._read(model_id)
            self.known.put(model_id, model)
        return model

    async def _read(self, model_id: str) -> Model:
        shipped = self.shipped.get(model_id)
        # The ids of shipped models are all there are, and no other text becomes a key.
        found = None if shipped is None else await self.main.model(model_id)
        if found is not None:
            return found
        if shipped is None:
            raise NotFound("There is no such model", code="model_not_found")
        await self.main.put_model(shipped)
        return shipped
