// PouchDB that keeps in step with two running settees (SETTEE_URL, SETTEE_OTHER_URL), live and after restarts.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { after, test } from 'node:test';
import PouchDB from 'pouchdb';
import memory from 'pouchdb-adapter-memory';

PouchDB.plugin(memory);
const nodes = [process.env.SETTEE_URL, process.env.SETTEE_OTHER_URL].map((url) => url.replace(/\/$/, ''));
const run = Date.now();
const running = [];

const remote = (name, node = 0) => new PouchDB(`${nodes[node]}/live${run}-${name}`);
const local = (name) => new PouchDB(`live${run}-${name}`, { adapter: 'memory' });
const rev = (c) => `1-${c.repeat(32)}`;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Goes on once `what` holds; it is looked at again and again for a while. */
async function until(name, what) {
  for (const end = Date.now() + 40000; Date.now() < end; await pause(50)) {
    if (await what().catch(() => false)) return;
  }
  assert.fail(`${name} did not come`);
}

/** All leaves of all documents: id to revisions. */
async function leaves(db) {
  const { results } = await db.changes({ style: 'all_docs' });
  const of = (row) => [row.id, row.changes.map((change) => change.rev).sort().join(' ')];
  return Object.fromEntries(results.map(of).sort(([a], [b]) => (a < b ? -1 : 1)));
}

async function ask(node, method, path, body) {
  const url = new URL(nodes[node] + path);
  const login = Buffer.from(`${url.username}:${url.password}`).toString('base64');
  url.username = '';
  url.password = '';
  const headers = { authorization: `Basic ${login}`, 'content-type': 'application/json', accept: 'application/json' };
  const answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  return { status: answer.status, body: await answer.json() };
}

after(() => Promise.all(running.map((sync) => sync.cancel())));

test('live both ways: edits, conflicts, attachments, deletions', async () => {
  const [here, there] = [local('both'), remote('both')];
  await there.info();
  const sync = here.sync(there, { live: true, retry: true });
  running.push(sync);
  await here.put({ _id: 'from-here', v: 1 });
  await there.put({ _id: 'from-there', v: 1 });
  await until('a document of each side', async () => (await here.get('from-there')) && (await there.get('from-here')));
  await there.put({ ...(await there.get('from-here')), v: 2 });
  await until('an edit', async () => (await here.get('from-here')).v === 2);
  const sibling = (c) => ({ _id: 'both', _rev: rev(c), c });
  await here.bulkDocs([sibling('a')], { new_edits: false });
  await there.bulkDocs([sibling('b')], { new_edits: false });
  const conflicts = async (db) => (await db.get('both', { conflicts: true }))._conflicts?.[0] === rev('a');
  await until('a conflict on both sides', async () => (await conflicts(here)) && (await conflicts(there)));
  const bytes = Buffer.from(Array.from({ length: 70000 }, (_, n) => n % 251));
  await here.putAttachment('picture', 'p', bytes, 'image/x-none');
  await there.putAttachment('text', 't', Buffer.from('text '.repeat(5000)), 'text/plain');
  await until('attachments', async () => bytes.equals(await there.getAttachment('picture', 'p'))
    && String(await here.getAttachment('text', 't')).length === 25000);
  await here.remove(await here.get('from-there'));
  await there.remove(await there.get('picture'));
  const gone = (db, id) => db.get(id).then(() => false, (e) => e.reason === 'deleted');
  await until('deletions', async () => (await gone(there, 'from-there')) && (await gone(here, 'picture')));
  sync.cancel();
  assert.deepEqual(await leaves(here), await leaves(there));
});

test('both sides go on from their checkpoints after restarts', async () => {
  let [here, there] = [local('again'), remote('again')];
  await there.info();
  await there.bulkDocs(Array.from({ length: 30 }, (_, n) => ({ _id: `there${n}` })));
  await here.bulkDocs(Array.from({ length: 30 }, (_, n) => ({ _id: `here${n}` })));
  assert.equal((await here.sync(there)).pull.docs_written, 30);
  await here.close();
  await ask(0, 'POST', '/_node/_local/_restart');
  await until('the node', async () => (await ask(0, 'GET', '/_up')).status === 200);
  [here, there] = [local('again'), remote('again')];
  await there.put({ _id: 'late' });
  const asked = [];
  const fetch = (url, options) => asked.push(String(url)) && PouchDB.fetch(url, options);
  const watched = new PouchDB(there.name, { fetch });
  const { pull, push } = await here.sync(watched);
  assert.deepEqual([pull.docs_read, push.docs_read], [1, 0]);
  const feeds = asked.filter((url) => url.includes('/_changes'));
  assert.ok(feeds.length > 0 && feeds.every((url) => !/since=0(&|$)/.test(url)), feeds.join('\n'));
});

test('a triangle of two servers and PouchDB comes to the same leaves', async () => {
  const seed = Number(process.env.SETTEE_SEED ?? run % 100000);
  let state = seed;
  /** A number below `n` (Park and Miller). */
  const random = (n) => (state = (state * 48271) % 2147483647) % n;
  const places = [local('triangle'), remote('triangle', 0), remote('triangle', 1)];
  const [here, one, two] = places;
  await Promise.all([one.info(), two.info()]);
  for (const [source, target] of [[one, two], [two, one]]) {
    const doc = { _id: `${run}-${source === one}`, source: source.name, target: target.name, continuous: true };
    assert.equal((await ask(0, 'PUT', `/_replicator/${doc._id}`, doc)).status, 201);
  }
  const retry = { live: true, retry: true };
  const syncs = [here.sync(one, retry), here.replicate.from(two, retry)];
  running.push(...syncs);
  const ids = Array.from({ length: 20 }, (_, n) => `d${n}`);
  for (let n = 0; n < 150; n += 1) {
    const [db, id] = [places[random(3)], ids[random(ids.length)]];
    const known = await db.get(id).catch(() => ({ _id: id }));
    const kind = random(10);
    // A conflict or a document that went away meanwhile: another writer was quicker.
    const late = (e) => assert.ok([404, 409].includes(e.status), e);
    if (kind === 0 && known._rev) await db.remove(known).catch(late);
    else if (kind === 1) await db.putAttachment(id, `a${random(3)}`, known._rev, Buffer.from(`x${n}`), 'text/plain').catch(late);
    else await db.put({ ...known, v: n }).catch(late);
  }
  const same = async () => {
    const [a, b, c] = (await Promise.all(places.map(leaves))).map((found) => JSON.stringify(found));
    return a === b && b === c;
  };
  await until(`the same leaves everywhere (seed ${seed})`, same);
  assert.ok(Object.keys(await leaves(one)).length > 10);
  syncs.forEach((sync) => sync.cancel());
});
