"""The store in twenty lines: a table, conditional writes, a transaction and reads.

Run it with `python examples/store_basics.py [DIRECTORY]`. The directory (default: `my-data`) holds
the SQLite files; a second run continues with the data of the first.
"""

import asyncio
import sys

from tally.store import (
    ConditionFailed,
    F,
    Get,
    Put,
    S,
    Table,
    Transaction,
    TransactionCancelled,
    Update,
    not_exists,
    open_sqlite,
)

ACCOUNTS = Table("accounts", partition=S("owner"))


async def main(directory: str) -> None:
    async with open_sqlite(directory) as engine:
        await engine.ensure_table(ACCOUNTS)
        for owner in ("ana", "ben"):
            account = {"owner": owner, "balance": 100}
            try:
                await engine.put(Put(ACCOUNTS, account, condition=not_exists("owner")))
            except ConditionFailed:
                print(f"{owner} has an account already")
        withdraw, deposit = F("balance").add(-30), F("balance").add(30)
        covered = F("balance") >= 30
        transfer = (
            Update(ACCOUNTS, {"owner": "ana"}, (withdraw,), condition=covered),
            Update(ACCOUNTS, {"owner": "ben"}, (deposit,)),
        )
        try:
            await engine.transact(Transaction(transfer))  # Both updates, or neither.
        except TransactionCancelled:
            print("ana's balance is too low")
        for owner in ("ana", "ben"):
            print((await engine.get(Get(ACCOUNTS, {"owner": owner}))).item)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "my-data"))
