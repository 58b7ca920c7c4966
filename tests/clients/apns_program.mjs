// Sends the pushes of a JSON document on standard input with @parse/node-apn; prints the results.
import apn from '@parse/node-apn';
import { readFileSync } from 'node:fs';

const work = JSON.parse(readFileSync(0, 'utf8'));
const provider = new apn.Provider({ ...work.options, connectionRetryLimit: 0 });

function notification(request) {
  const note = new apn.Notification();
  // The library completes the payload of a channel; that of a push is sent as it is.
  note[request.action ? 'payload' : 'rawPayload'] = request.payload;
  Object.assign(note, request.headers);
  return note;
}

function result({ sent, failed }) {
  if (sent.length) return { status: 200, ...sent[0] };
  const [failure] = failed;
  const reason = failure.response?.reason ?? failure.error?.message;
  return { status: failure.status, ...failure.response, reason };
}

const results = [];
for (const request of work.requests) {
  const note = notification(request);
  if (request.token) results.push(result(await provider.send(note, request.token)));
  else if (request.action)
    results.push(result(await provider.manageChannels(note, work.bundleId, request.action)));
  else results.push(result(await provider.broadcast(note, work.bundleId)));
}
console.log(JSON.stringify(results));
provider.shutdown();
