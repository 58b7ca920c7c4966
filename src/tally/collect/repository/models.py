"""Items `META` and `PART#{index}` of `MODEL#{modelId}`: models, which change only with releases."""

from collections.abc import Mapping, Sequence
from typing import Any

from tally.collect.model.records import MAX_PARTS, Model, ModelMeta, Part
from tally.collect.repository.table import COMMIT_COLLECT, META, item_key, model_pk, part_sk
from tally.store.access import BatchGetItem, BatchWriteItem, Query, access, param
from tally.store.expressions import F
from tally.store.store import Store
from tally.store.values import Item

MAX_MODELS = 50


_META_KEY = item_key(model_pk(param("modelId")), META)
_PART_KEY = item_key(model_pk(param("modelId")), part_sk(param("index")))


class Models:
    """Access patterns of models."""

    __slots__ = ()
    store: Store

    @access(
        "Write shipped model",
        BatchWriteItem(key=(_META_KEY, _PART_KEY)),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Start of the server",
        frequency="Per start",
        bound=MAX_PARTS + 1,
    )
    async def put_model(self, model: Model) -> None:
        """Write a model with its parts. Idempotent."""
        await self.store.write_many(COMMIT_COLLECT, puts=_items(model))

    @access(
        "Get model with parts",
        Query(where=F("PK") == model_pk(param("modelId"))),
        table=COMMIT_COLLECT,
        by="both",
        trigger="GET /models/{id}, POST /milestones, minting",
        frequency="Per request, cached for minutes",
        bound=MAX_PARTS + 1,
    )
    async def model(self, model_id: str) -> Model | None:
        items = [
            item async for item in self.store.items(COMMIT_COLLECT, F("PK") == model_pk(model_id))
        ]
        metas = [_meta(item) for item in items if item["SK"] == META]
        return (
            Model(metas[0], tuple(_part(item) for item in items if item["SK"] != META))
            if metas
            else None
        )

    @access(
        "List models",
        BatchGetItem(key=_META_KEY),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /models",
        frequency="Per request",
        bound=MAX_MODELS,
    )
    async def metas(self, model_ids: Sequence[str]) -> list[ModelMeta]:
        """Return the models that exist, sorted by name."""
        items = await self.store.get_many(
            COMMIT_COLLECT, [item_key(model_pk(model_id), META) for model_id in model_ids]
        )
        return sorted((_meta(item) for item in items), key=lambda meta: meta.name)


def _items(model: Model) -> list[Item]:
    meta, partition = model.meta, model_pk(model.meta.model_id)
    head = item_key(partition, META) | {
        "modelId": meta.model_id,
        "name": meta.name,
        "description": meta.description,
        "partsTotal": meta.parts_total,
    }
    if not meta.counts_manual:
        head["countsManual"] = False
    return [
        head,
        *(
            item_key(partition, part_sk(part.index))
            | {
                "modelId": meta.model_id,
                "partIndex": part.index,
                "name": part.name,
                "description": part.description,
                "mesh": [dict(primitive) for primitive in part.mesh],
                "attach": dict(part.attach),
            }
            for part in model.parts
        ),
    ]


def _meta(item: Mapping[str, Any]) -> ModelMeta:
    return ModelMeta(
        item["modelId"],
        item["name"],
        item["description"],
        item["partsTotal"],
        item.get("countsManual", True),
    )


def _part(item: Mapping[str, Any]) -> Part:
    return Part(
        item["partIndex"], item["name"], item["description"], tuple(item["mesh"]), item["attach"]
    )
