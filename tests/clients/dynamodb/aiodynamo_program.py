"""Uses a DynamoDB endpoint with aiodynamo: `aiodynamo_program.py URL ITEMS`."""

import asyncio
import sys

import httpx
from aiodynamo.client import Client
from aiodynamo.credentials import Key, StaticCredentials
from aiodynamo.errors import ConditionalCheckFailed
from aiodynamo.expressions import F, HashAndRangeKeyCondition, HashKey, RangeKey
from aiodynamo.http.httpx import HTTPX
from aiodynamo.models import KeySchema, KeySpec, KeyType, PayPerRequest
from yarl import URL

_, url, count = sys.argv
ITEMS = int(count)


async def main() -> None:
    async with httpx.AsyncClient() as http:
        credentials = StaticCredentials(Key("any", "any"))
        client = Client(HTTPX(http), credentials, "local", endpoint=URL(url))
        keys = KeySchema(KeySpec("pk", KeyType.string), KeySpec("sk", KeyType.string))
        table = client.table("aiodynamo")
        await table.create(PayPerRequest(), keys, wait_for_active=True)
        await table.put_item({"pk": "a", "sk": "1", "n": 1})
        try:
            await table.put_item({"pk": "a", "sk": "1"}, condition=F("pk").does_not_exist())
        except ConditionalCheckFailed:
            pass
        else:
            raise AssertionError("the second write must fail")
        await table.update_item({"pk": "a", "sk": "1"}, F("n").add(2))
        assert (await table.get_item({"pk": "a", "sk": "1"}))["n"] == 3
        for number in range(ITEMS):
            await table.put_item({"pk": "many", "sk": f"{number:06}"})
        found = [item async for item in table.query(HashKey("pk", "many"), limit=ITEMS)]
        assert len(found) == ITEMS
        page = await table.query_single_page(HashKey("pk", "many"), limit=10)
        assert len(page.items) == 10
        assert page.last_evaluated_key
        prefix = HashAndRangeKeyCondition(
            HashKey("pk", "many"), RangeKey("sk").begins_with("00000")
        )
        assert len([item async for item in table.query(prefix)]) == min(10, ITEMS)
        await table.delete()
    print("done")


asyncio.run(main())
