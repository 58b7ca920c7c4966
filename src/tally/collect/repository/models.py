"""Items of `MODEL#{modelId}`: META and PART#01 and up.

They are the same for everybody, and only change with the program.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tally.collect.model import MAX_PARTS, Model, ModelMeta, Part
from tally.collect.repository.table import COMMIT_COLLECT, META, at, model, part
from tally.store.access import BatchGetItem, BatchWriteItem, Query, access
from tally.store.expressions import F
from tally.store.store import Store
from tally.store.values import Item

MAX_MODELS = 50


class Models:
    """What can be collected."""

    __slots__ = ()
    store: Store

    @access(
        "Write shipped model",
        BatchWriteItem,
        table=COMMIT_COLLECT,
        key="PK=MODEL#{modelId}, SK=META and PART#{index}, in batches of 25",
        by="system",
        trigger="Start of the server",
        frequency="Per start",
        bound=MAX_PARTS + 1,
    )
    async def put_model(self, shipped: Model) -> None:
        """The same again and again; two servers that start together write the same."""
        await self.store.write_many(COMMIT_COLLECT, puts=_items(shipped))

    @access(
        "Get model with parts",
        Query,
        table=COMMIT_COLLECT,
        key="PK=MODEL#{modelId}",
        by="both",
        trigger="GET /models/{id}, POST /milestones, minting",
        frequency="Per request, cached for minutes",
        bound=MAX_PARTS + 1,
    )
    async def model(self, model_id: str) -> Model | None:
        items = [
            item async for item in self.store.items(COMMIT_COLLECT, F("PK") == model(model_id))
        ]
        metas = [_meta(item) for item in items if item["SK"] == META]
        return (
            Model(metas[0], tuple(_part(item) for item in items if item["SK"] != META))
            if metas
            else None
        )

    @access(
        "List models",
        BatchGetItem,
        table=COMMIT_COLLECT,
        key="PK=MODEL#{modelId}, SK=META for every shipped id",
        by="user",
        trigger="GET /models",
        frequency="Per request",
        bound=MAX_MODELS,
    )
    async def metas(self, model_ids: Sequence[str]) -> list[ModelMeta]:
        """Those that are there, by name."""
        items = await self.store.get_many(
            COMMIT_COLLECT, [at(model(model_id), META) for model_id in model_ids]
        )
        return sorted((_meta(item) for item in items), key=lambda meta: meta.name)


def _items(shipped: Model) -> list[Item]:
    meta, partition = shipped.meta, model(shipped.meta.model_id)
    return [
        at(partition, META)
        | {
            "modelId": meta.model_id,
            "name": meta.name,
            "description": meta.description,
            "partsTotal": meta.parts_total,
        },
        *(
            at(partition, part(each.index))
            | {
                "modelId": meta.model_id,
                "partIndex": each.index,
                "name": each.name,
                "description": each.description,
                "mesh": [dict(primitive) for primitive in each.mesh],
                "attach": dict(each.attach),
            }
            for each in shipped.parts
        ),
    ]


def _meta(item: Mapping[str, Any]) -> ModelMeta:
    return ModelMeta(item["modelId"], item["name"], item["description"], item["partsTotal"])


def _part(item: Mapping[str, Any]) -> Part:
    return Part(
        item["partIndex"], item["name"], item["description"], tuple(item["mesh"]), item["attach"]
    )
