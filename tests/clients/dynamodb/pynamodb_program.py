"""Uses a DynamoDB endpoint with PynamoDB: `pynamodb_program.py URL ITEMS`."""

import sys

from pynamodb.attributes import NumberAttribute, TTLAttribute, UnicodeAttribute
from pynamodb.connection import Connection
from pynamodb.exceptions import PutError, TransactWriteError
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex
from pynamodb.models import Model
from pynamodb.transactions import TransactWrite

_, url, count = sys.argv
ITEMS = int(count)


class ByAlbum(GlobalSecondaryIndex):
    class Meta:
        projection = AllProjection()
        host = url

    album = UnicodeAttribute(hash_key=True)


class Song(Model):
    class Meta:
        table_name = "pynamodb"
        host = url
        region = "local"
        aws_access_key_id = "any"
        aws_secret_access_key = "any"
        billing_mode = "PAY_PER_REQUEST"

    artist = UnicodeAttribute(hash_key=True)
    title = UnicodeAttribute(range_key=True)
    album = UnicodeAttribute(null=True)
    plays = NumberAttribute(default=0)
    until = TTLAttribute(null=True)
    by_album = ByAlbum()


Song.create_table(wait=True)
song = Song("Nina Simone", "Sinnerman", album="Pastel Blues")
song.save(condition=Song.artist.does_not_exist())
try:
    song.save(condition=Song.artist.does_not_exist())
except PutError as error:
    assert error.cause_response_code == "ConditionalCheckFailedException", error
else:
    raise AssertionError("the second write must fail")
song.update(actions=[Song.plays.add(2)])
assert Song.get("Nina Simone", "Sinnerman").plays == 2
with Song.batch_write() as batch:
    for number in range(ITEMS):
        batch.save(Song("Many", f"{number:06}", album="All"))
assert sum(1 for _ in Song.query("Many", page_size=10)) == ITEMS
assert sum(1 for _ in Song.by_album.query("All", page_size=10)) == ITEMS
connection = Connection(region="local", host=url)
try:
    with TransactWrite(connection=connection) as transaction:
        transaction.update(song, actions=[Song.plays.add(1)])
        transaction.condition_check(Song, "None", "x", condition=Song.artist.exists())
except TransactWriteError as error:
    codes = {reason.code for reason in error.cancellation_reasons if reason is not None}
    assert codes == {"ConditionalCheckFailed"}, error
else:
    raise AssertionError("the transaction must fail")
assert Song.get("Nina Simone", "Sinnerman").plays == 2
Song.delete_table()
print("done")
