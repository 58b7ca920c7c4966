// Calls every backend with openapi-fetch and the types that openapi-typescript generates.
// The variables TALLY_URL and TALLY_CREDENTIALS name the server. Prints the number of calls.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Problem = components["schemas"]["ProblemBody"];
interface Result<T> { data?: T; error?: unknown; response: Response }

const baseUrl = process.env["TALLY_URL"]!;
const credentials: Record<string, string> = JSON.parse(process.env["TALLY_CREDENTIALS"]!);
const connect = (headers: Record<string, string> = {}) =>
  createClient<paths>({ baseUrl, headers });
const bearer = (token: string) => connect({ Authorization: `Bearer ${token}` });
const anyone = connect();
let calls = 0;

function check<T>(result: Result<T>, status = 200): T {
  calls += 1;
  assert.equal(result.response.status, status, JSON.stringify(result.error));
  assert.ok(result.data !== undefined);
  assert.ok(result.response.headers.get("x-request-id"));
  return result.data;
}

function refuse(result: { error?: Problem; response: Response }, status: number, code: string) {
  calls += 1;
  assert.equal(result.response.status, status);
  assert.equal(result.error?.code, code);
  assert.equal(result.error.type, `/docs/errors#${code}`);
  assert.equal(result.error.requestId, result.response.headers.get("x-request-id"));
}

async function useInstance() {
  assert.equal(check(await anyone.GET("/health")).status, "ok");
}

async function useDevices() {
  const operator = bearer(credentials["operator"]!);
  const body = { description: "generated client" };
  const key = check(await operator.POST("/devices/api-keys", { body }), 201);
  const board = connect({ "X-API-Key": key.api_key });
  const version = {
    hardware_id: "AA:BB:CC:DD:EE:03",
    boot_id: randomUUID(),
    firmware_version: "1.0.16",
  };
  const capabilities = { sensors: ["bme280"], features: {} };
  check(await board.POST("/devices/register", { body: { ...version, capabilities } }));
  const now = Date.now();
  const reading = {
    batch_id: `${version.hardware_id}_${version.boot_id}_${now - 600_000}_${now}`,
    timestamp_ms: now,
    sensors: { bme280_temp_c: 22.5 },
    sensor_status: { bme280: "ok" as const },
  };
  check(await board.POST("/devices/data", { body: { ...version, readings: [reading] } }));
  const known = { params: { path: { hardware_id: version.hardware_id } } };
  const latest = check(await operator.GET("/devices/devices/{hardware_id}/latest", known));
  assert.deepEqual(latest.sensors, { bme280_temp_c: 22.5 });
  check(await operator.GET("/devices/devices", { params: { query: { limit: 5 } } }));
  const unknown = { params: { path: { hardware_id: "AA:BB:CC:DD:EE:02" } } };
  refuse(await operator.GET("/devices/devices/{hardware_id}", unknown), 404, "device_not_found");
}

async function useScoreboard() {
  const username = `script_${randomUUID().slice(0, 8)}`;
  const account = { username, email: `${username}@example.com`, password: "violet harbour 9" };
  const login = check(
    await anyone.POST("/scoreboard/api/v1/auth/register", { body: account }), 201);
  const server = connect({ "X-Internal-API-Key": credentials["game_server"]! });
  const action = { action_id: randomUUID(), user_id: login.user.user_id, max_score: 60 };
  const completed = check(
    await server.POST("/scoreboard/api/v1/internal/actions/complete", { body: action }), 201);
  const player = bearer(login.tokens.access_token);
  const update = { action_token: completed.action_token, score_delta: 60 };
  const score = check(await player.PATCH("/scoreboard/api/v1/scores", { body: update }));
  assert.equal(score.new_score, 60);
  const board = await anyone.GET("/scoreboard/api/v1/leaderboard", { params: { query: {} } });
  check(board);
  assert.ok(Number(board.response.headers.get("ratelimit-limit")) > 0);
  const wrong = { login: username, password: "not the password" };
  refuse(
    await anyone.POST("/scoreboard/api/v1/auth/login", { body: wrong }),
    401, "invalid_credentials");
}

async function useCricket() {
  const user = bearer(credentials["cricket_user"]!);
  const page = check(await user.GET("/cricket/matches/live"));
  for (const match of page.items.slice(0, 1)) {
    const path = { match_id: match.matchId };
    check(await user.GET("/cricket/matches/{match_id}", { params: { path } }));
    check(await user.GET("/cricket/matches/{match_id}/display", { params: { path } }));
  }
  const path = { match_id: "no-such-match" };
  refuse(
    await user.GET("/cricket/matches/{match_id}", { params: { path } }), 404, "match_not_found");
  refuse(
    await user.POST("/cricket/admin/sync", { body: { what: "leagues" } }), 403, "not_an_operator");
}

async function useCollect() {
  const models = check(await anyone.GET("/collect/models"));
  const path = { model_id: "no-such-model" };
  refuse(
    await anyone.GET("/collect/models/{model_id}", { params: { path } }), 404, "model_not_found");
  const user = connect({
    Cookie: `cc_session=${credentials["collect_session"]}`,
    "X-Requested-With": "generated client",
  });
  check(await user.GET("/collect/me"));
  const body = {
    modelId: models.items[0]!.modelId,
    sport: "RIDE" as const,
    metric: "DISTANCE_METERS" as const,
    totalTarget: 500_000,
  };
  check(await user.POST("/collect/milestones", { body }), 201);
}

const uses: Record<string, () => Promise<void>> = {
  collect: useCollect,
  cricket: useCricket,
  devices: useDevices,
  instance: useInstance,
  scoreboard: useScoreboard,
};
for (const name of process.argv.slice(2)) await uses[name]!();
console.log(calls);
