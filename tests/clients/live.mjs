// What the tests of live replication share: databases of the running settees (the URLs of SETTEE_URL, SETTEE_OTHER_URL, each
// one node or the nodes of a cluster, with commas between), and questions to them.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import PouchDB from 'pouchdb';
import memory from 'pouchdb-adapter-memory';

PouchDB.plugin(memory);
/** The nodes of each of the two servers. */
export const servers = [process.env.SETTEE_URL, process.env.SETTEE_OTHER_URL]
  .map((urls) => urls.split(',').map((url) => url.replace(/\/$/, '')));
export const run = Date.now();

/** A database of a server, by way of one of its nodes. */
export const remote = (name, server = 0, node = 0) => new PouchDB(`${servers[server][node]}/live${run}-${name}`);
export const local = (name) => new PouchDB(`live${run}-${name}`, { adapter: 'memory' });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Goes on once `what` holds; it is looked at again and again for a while. */
export async function until(name, what) {
  for (const end = Date.now() + 180000; Date.now() < end; await pause(50)) {
    if (await what().catch(() => false)) return;
  }
  assert.fail(`${name} did not come`);
}

/** All leaves of all documents: id to revisions. */
export async function leaves(db) {
  const { results } = await db.changes({ style: 'all_docs' });
  const of = (row) => [row.id, row.changes.map((change) => change.rev).sort().join(' ')];
  return Object.fromEntries(results.map(of).sort(([a], [b]) => (a < b ? -1 : 1)));
}

export async function ask(server, method, path, body, { node = 0, ...more } = {}) {
  const url = new URL(servers[server][node] + path);
  const login = Buffer.from(`${url.username}:${url.password}`).toString('base64');
  url.username = '';
  url.password = '';
  const headers = { authorization: `Basic ${login}`, 'content-type': 'application/json', accept: 'application/json', ...more };
  const answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, body: await answer.json() };
}
