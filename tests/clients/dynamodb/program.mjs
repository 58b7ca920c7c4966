// Uses a DynamoDB endpoint with @aws-sdk/lib-dynamodb, electrodb and dynamodb-toolbox.
//
// DYNAMODB_URL is the endpoint, and ITEMS the number of items that are read page by page. A failed
// assertion ends the program with an error.

import assert from "node:assert/strict";
import {
  CreateTableCommand,
  DescribeTableCommand,
  DynamoDBClient,
  UpdateTimeToLiveCommand,
  waitUntilTableExists,
} from "@aws-sdk/client-dynamodb";
import {
  BatchWriteCommand,
  DynamoDBDocumentClient,
  GetCommand,
  PutCommand,
  TransactWriteCommand,
  UpdateCommand,
  paginateQuery,
} from "@aws-sdk/lib-dynamodb";
import { Entity as ElectroEntity } from "electrodb";
import {
  Entity,
  GetItemCommand,
  PutItemCommand,
  QueryCommand,
  Table,
  UpdateItemCommand,
  $add,
  item,
  number,
  string,
} from "dynamodb-toolbox";

const ITEMS = Number(process.env.ITEMS);
const client = new DynamoDBClient({
  endpoint: process.env.DYNAMODB_URL,
  region: "local",
  credentials: { accessKeyId: "any", secretAccessKey: "any" },
});
const documents = DynamoDBDocumentClient.from(client);

async function createTable(name, stream) {
  await client.send(
    new CreateTableCommand({
      TableName: name,
      KeySchema: [
        { AttributeName: "pk", KeyType: "HASH" },
        { AttributeName: "sk", KeyType: "RANGE" },
      ],
      AttributeDefinitions: ["pk", "sk"].map((AttributeName) => ({ AttributeName, AttributeType: "S" })),
      BillingMode: "PAY_PER_REQUEST",
      StreamSpecification: stream ? { StreamEnabled: true, StreamViewType: "NEW_IMAGE" } : undefined,
    }),
  );
  await waitUntilTableExists({ client, maxWaitTime: 30 }, { TableName: name });
}

async function useDocuments() {
  const TableName = "js-documents";
  await createTable(TableName, true);
  const TimeToLiveSpecification = { AttributeName: "until", Enabled: true };
  await client.send(new UpdateTimeToLiveCommand({ TableName, TimeToLiveSpecification }));
  const { Table: described } = await client.send(new DescribeTableCommand({ TableName }));
  assert.match(described.LatestStreamArn, /stream/);
  const value = { pk: "a", sk: "1", n: 1.5, list: [null, true, { x: new Uint8Array([1, 2]) }], tags: new Set(["t"]) };
  await documents.send(new PutCommand({ TableName, Item: value }));
  assert.deepEqual((await documents.send(new GetCommand({ TableName, Key: { pk: "a", sk: "1" } }))).Item, value);
  const again = new PutCommand({ TableName, Item: value, ConditionExpression: "attribute_not_exists(pk)" });
  await assert.rejects(documents.send(again), { name: "ConditionalCheckFailedException" });
  for (let start = 0; start < ITEMS; start += 25) {
    const batch = Array.from({ length: Math.min(25, ITEMS - start) }, (_, position) => ({
      PutRequest: { Item: { pk: "many", sk: String(start + position).padStart(6, "0") } },
    }));
    await documents.send(new BatchWriteCommand({ RequestItems: { [TableName]: batch } }));
  }
  const found = [];
  const query = {
    TableName,
    KeyConditionExpression: "pk = :pk",
    ExpressionAttributeValues: { ":pk": "many" },
  };
  for await (const page of paginateQuery({ client: documents, pageSize: 10 }, query)) found.push(...page.Items);
  assert.equal(found.length, ITEMS);
  const counter = {
    TableName,
    Key: { pk: "a", sk: "1" },
    UpdateExpression: "ADD n :one",
    ExpressionAttributeValues: { ":one": 1 },
  };
  assert.equal((await documents.send(new UpdateCommand({ ...counter, ReturnValues: "ALL_NEW" }))).Attributes.n, 2.5);
  const check = { TableName, Key: { pk: "none", sk: "1" }, ConditionExpression: "attribute_exists(pk)" };
  const transaction = new TransactWriteCommand({ TransactItems: [{ Update: counter }, { ConditionCheck: check }] });
  await assert.rejects(documents.send(transaction), (error) => {
    assert.deepEqual(
      error.CancellationReasons.map((reason) => reason.Code),
      ["None", "ConditionalCheckFailed"],
    );
    return true;
  });
}

async function useElectro() {
  const table = "js-electro";
  await createTable(table);
  const songs = new ElectroEntity(
    {
      model: { entity: "song", version: "1", service: "music" },
      attributes: {
        artist: { type: "string", required: true },
        title: { type: "string", required: true },
        plays: { type: "number", default: 0 },
      },
      indexes: {
        byArtist: { pk: { field: "pk", composite: ["artist"] }, sk: { field: "sk", composite: ["title"] } },
      },
    },
    { client, table },
  );
  for (const title of ["Four Women", "Sinnerman", "Feeling Good"]) {
    await songs.create({ artist: "Nina Simone", title }).go();
  }
  await assert.rejects(songs.create({ artist: "Nina Simone", title: "Sinnerman" }).go());
  await songs.patch({ artist: "Nina Simone", title: "Sinnerman" }).add({ plays: 2 }).go();
  const found = await songs.query.byArtist({ artist: "Nina Simone" }).begins({ title: "S" }).go();
  assert.deepEqual(found.data, [{ artist: "Nina Simone", title: "Sinnerman", plays: 2 }]);
  const all = await songs.query.byArtist({ artist: "Nina Simone" }).go({ limit: 1, pages: "all" });
  assert.equal(all.data.length, 3);
}

async function useToolbox() {
  await createTable("js-toolbox");
  const table = new Table({
    name: "js-toolbox",
    documentClient: documents,
    partitionKey: { name: "pk", type: "string" },
    sortKey: { name: "sk", type: "string" },
  });
  const players = new Entity({
    name: "PLAYER",
    table,
    schema: item({ pk: string().key(), sk: string().key(), score: number().optional() }),
  });
  const key = { pk: "p", sk: "1" };
  await players.build(PutItemCommand).item({ ...key, score: 1 }).send();
  await players.build(UpdateItemCommand).item({ ...key, score: $add(4) }).send();
  assert.equal((await players.build(GetItemCommand).key(key).send()).Item.score, 5);
  const onlyNew = { condition: { attr: "pk", exists: false } };
  await assert.rejects(players.build(PutItemCommand).item(key).options(onlyNew).send(), {
    name: "ConditionalCheckFailedException",
  });
  const found = await table.build(QueryCommand).query({ partition: "p" }).entities(players).send();
  assert.equal(found.Items.length, 1);
}

const uses = { "lib-dynamodb": useDocuments, electrodb: useElectro, "dynamodb-toolbox": useToolbox };
await uses[process.argv[2]]();
console.log("done");
