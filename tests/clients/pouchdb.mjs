// PouchDB against a running settee (SETTEE_URL): its HTTP adapter, and replication with a database in memory.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { after, test } from 'node:test';
import PouchDB from 'pouchdb';
import memory from 'pouchdb-adapter-memory';

PouchDB.plugin(memory);
const base = process.env.SETTEE_URL.replace(/\/$/, '');
const run = Date.now();
const opened = [];

/** A database of its own on the server. */
function remote(name) {
  const db = new PouchDB(`${base}/pouch${run}-${name}`);
  opened.push(db);
  return db;
}
/** A database of its own in memory. */
const local = (name) => new PouchDB(`local${run}-${name}`, { adapter: 'memory' });

after(() => Promise.all(opened.map((db) => db.destroy())));

test('put, get, update, conflict and remove', async () => {
  const db = remote('documents');
  const first = await db.put({ _id: 'a/b é', v: 1 });
  assert.equal((await db.get('a/b é')).v, 1);
  const second = await db.put({ _id: 'a/b é', _rev: first.rev, v: 2 });
  const refused = await db.put({ _id: 'a/b é', _rev: first.rev, v: 3 }).then(() => null, (e) => e);
  assert.equal(refused.status, 409);
  assert.equal(refused.name, 'conflict');
  assert.equal((await db.get('a/b é', { rev: first.rev })).v, 1);
  await db.remove('a/b é', second.rev);
  const gone = await db.get('a/b é').then(() => null, (e) => e);
  assert.equal(gone.status, 404);
  assert.equal((await db.info()).doc_count, 0);
});

test('post makes an id, local documents stay local', async () => {
  const db = remote('post');
  const made = await db.post({ v: 1 });
  assert.ok(made.ok && made.id);
  const local = await db.put({ _id: '_local/checkpoint', v: 1 });
  await db.put({ _id: '_local/checkpoint', _rev: local.rev, v: 2 });
  assert.equal((await db.get('_local/checkpoint')).v, 2);
  assert.equal((await db.allDocs()).total_rows, 1);
});

test('bulkDocs and allDocs', async () => {
  const db = remote('bulk');
  const docs = Array.from({ length: 120 }, (_, n) => ({ _id: `d${String(n).padStart(3, '0')}`, n }));
  const rows = await db.bulkDocs(docs);
  assert.ok(rows.every((row) => row.ok));
  const again = await db.bulkDocs(docs.slice(0, 3));
  assert.ok(again.every((row) => row.status === 409 && row.error));
  const page = await db.allDocs({ include_docs: true, startkey: 'd010', limit: 5, skip: 1 });
  assert.deepEqual(page.rows.map((row) => row.doc.n), [11, 12, 13, 14, 15]);
  assert.equal(page.total_rows, 120);
  const backwards = await db.allDocs({ descending: true, limit: 2 });
  assert.deepEqual(backwards.rows.map((row) => row.id), ['d119', 'd118']);
  const keyed = await db.allDocs({ keys: ['d001', 'absent', 'd000'] });
  assert.deepEqual(keyed.rows.map((row) => row.id ?? row.error), ['d001', 'not_found', 'd000']);
  const got = await db.bulkGet({ docs: [{ id: 'd005' }, { id: 'd006', rev: rows[6].rev }] });
  assert.deepEqual(got.results.map((r) => r.docs[0].ok.n), [5, 6]);
});

test('attachments inline and alone', async () => {
  const db = remote('attachments');
  const put = await db.putAttachment('doc', 'text.txt', Buffer.from('some text'), 'text/plain');
  const read = await db.getAttachment('doc', 'text.txt');
  assert.equal(String(read), 'some text');
  const second = { content_type: 'image/x-none', data: Buffer.from([0, 255, 1, 254]).toString('base64') };
  const doc = await db.get('doc');
  const both = await db.put({ ...doc, _attachments: { ...doc._attachments, second } });
  const whole = await db.get('doc', { attachments: true });
  assert.equal(Buffer.from(whole._attachments['text.txt'].data, 'base64').toString(), 'some text');
  assert.equal(whole._attachments.second.data, second.data);
  assert.equal(whole._attachments['text.txt'].digest, doc._attachments['text.txt'].digest);
  assert.ok(put.rev < both.rev);
  await db.removeAttachment('doc', 'text.txt', both.rev);
  assert.deepEqual(Object.keys((await db.get('doc'))._attachments), ['second']);
});

test('changes', async () => {
  const db = remote('changes');
  await db.bulkDocs(['a', 'b', 'c'].map((_id) => ({ _id })));
  const all = await db.changes({ include_docs: true });
  assert.deepEqual(all.results.map((row) => row.id).sort(), ['a', 'b', 'c']);
  await db.put({ _id: 'd' });
  const late = await db.changes({ since: all.last_seq });
  assert.deepEqual(late.results.map((row) => row.id), ['d']);
  const newest = await db.changes({ descending: true, limit: 1 });
  // Which one depends on the ranges: only within one of them does the order of writing count.
  assert.equal(newest.results.length, 1);
});

test('revsDiff and conflicts', async () => {
  const db = remote('siblings');
  const rev = (c) => `1-${c.repeat(32)}`;
  await db.bulkDocs([{ _id: 'x', _rev: rev('a') }, { _id: 'x', _rev: rev('b') }], { new_edits: false });
  assert.deepEqual(await db.revsDiff({ x: [rev('a'), rev('c')] }), { x: { missing: [rev('c')] } });
  const doc = await db.get('x', { conflicts: true });
  assert.deepEqual([doc._rev, doc._conflicts], [rev('b'), [rev('a')]]);
  const leaves = await db.get('x', { open_revs: 'all' });
  assert.deepEqual(leaves.map((leaf) => leaf.ok._rev).sort(), [rev('a'), rev('b')]);
});

test('replication to the server and back, with attachments, conflicts and deletions', async () => {
  const here = local('source');
  const there = remote('replicated');
  const back = local('target');
  await here.bulkDocs(Array.from({ length: 150 }, (_, n) => ({ _id: `r${n}`, n })));
  await here.putAttachment('r0', 'f', (await here.get('r0'))._rev, Buffer.from('attached'), 'text/plain');
  await here.remove(await here.get('r1'));
  const sibling = (c) => ({ _id: 'both', _rev: `1-${c.repeat(32)}`, c });
  await here.bulkDocs([sibling('a'), sibling('b')], { new_edits: false });
  const out = await here.replicate.to(there);
  assert.deepEqual([out.ok, out.doc_write_failures], [true, 0]);
  assert.equal((await there.info()).doc_count, 150);
  assert.equal(String(await there.getAttachment('r0', 'f')), 'attached');
  const again = await here.replicate.to(there);
  assert.equal(again.docs_written, 0);

  await there.put({ ...(await there.get('r2')), n: 'changed there' });
  const home = await back.replicate.from(there);
  assert.deepEqual([home.ok, home.doc_write_failures], [true, 0]);
  assert.equal((await back.get('r2')).n, 'changed there');
  assert.equal((await back.get('r1').then(() => null, (e) => e)).reason, 'deleted');
  assert.deepEqual((await back.get('both', { conflicts: true }))._conflicts, [`1-${'a'.repeat(32)}`]);
  assert.equal(String(await back.getAttachment('r0', 'f')), 'attached');
  const ids = async (db) => (await db.allDocs()).rows.map((row) => [row.id, row.value.rev]);
  assert.deepEqual(await ids(back), await ids(there));
  const both = await here.sync(there);
  assert.deepEqual([both.push.ok, both.pull.ok], [true, true]);
  assert.equal((await here.get('r2')).n, 'changed there');
});
