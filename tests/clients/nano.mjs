// The nano client against a running settee (SETTEE_URL): the calls an application makes every day.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { after, before, test } from 'node:test';
import Nano from 'nano';

const url = process.env.SETTEE_URL;
const name = `nano${Date.now()}`;
const nano = Nano(url);
let db;

before(async () => {
  assert.deepEqual(await nano.db.create(name), { ok: true });
  db = nano.use(name);
});
after(() => nano.db.destroy(name));

/** The error that a promise is rejected with. */
const failure = (promise) => promise.then(() => assert.fail('an error was expected'), (e) => e);

test('databases are created, described, listed and refused', async () => {
  const info = await nano.db.get(name);
  assert.equal(info.db_name, name);
  assert.ok((await nano.db.list()).includes(name));
  const again = await failure(nano.db.create(name));
  assert.equal(again.statusCode, 412);
  assert.equal(again.error, 'file_exists');
  assert.equal((await failure(nano.db.get(`${name}-absent`))).statusCode, 404);
});

test('documents are created, read, updated and deleted', async () => {
  const created = await db.insert({ crazy: true, n: 1.5 }, 'rabbit');
  assert.equal(created.id, 'rabbit');
  const read = await db.get('rabbit');
  assert.deepEqual(read, { _id: 'rabbit', _rev: created.rev, crazy: true, n: 1.5 });
  const updated = await db.insert({ ...read, crazy: false });
  assert.match(updated.rev, /^2-[0-9a-f]{32}$/);
  assert.equal((await db.head('rabbit')).etag, `"${updated.rev}"`);
  const old = await db.get('rabbit', { rev: created.rev });
  assert.equal(old.crazy, true);
  assert.deepEqual((await db.get('rabbit', { revs: true }))._revisions.start, 2);
  await db.destroy('rabbit', updated.rev);
  const gone = await failure(db.get('rabbit'));
  assert.equal(gone.statusCode, 404);
  assert.equal(gone.reason, 'deleted');
});

test('a document without an id gets one', async () => {
  const created = await db.insert({ made: 'by the server' });
  assert.match(created.id, /^[0-9a-f]{32}$/);
  assert.equal((await db.get(created.id)).made, 'by the server');
});

test('an edit of an old revision is a conflict', async () => {
  const first = await db.insert({ v: 1 }, 'contested');
  await db.insert({ _rev: first.rev, v: 2 }, 'contested');
  const refused = await failure(db.insert({ _rev: first.rev, v: 3 }, 'contested'));
  assert.equal(refused.statusCode, 409);
  assert.equal(refused.error, 'conflict');
  assert.equal((await db.get('contested')).v, 2);
});

test('replicated siblings are kept and shown as conflicts', async () => {
  const sibling = (hash, v) => ({ _id: 'twice', _rev: `1-${hash.repeat(32)}`, v });
  await db.bulk({ docs: [sibling('a', 1), sibling('b', 2)], new_edits: false });
  const both = await db.get('twice', { conflicts: true });
  assert.equal(both.v, 2);
  assert.deepEqual(both._conflicts, [`1-${'a'.repeat(32)}`]);
});

test('attachments are stored, read and removed', async () => {
  const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, n) => n % 251));
  const stored = await db.attachment.insert('holder', 'a file.bin', bytes, 'application/octet-stream');
  assert.deepEqual(await db.attachment.get('holder', 'a file.bin'), bytes);
  const stub = (await db.get('holder'))._attachments['a file.bin'];
  assert.equal(stub.length, bytes.length);
  assert.equal(stub.content_type, 'application/octet-stream');
  const gone = await db.attachment.destroy('holder', 'a file.bin', { rev: stored.rev });
  assert.equal((await db.get('holder', { rev: gone.rev }))._attachments, undefined);
  const inline = { name: 'note.txt', data: 'text', content_type: 'text/plain' };
  const many = await db.multipart.insert({ kind: 'parts' }, [inline, { ...inline, name: 'b.txt', data: 'two' }], 'parts');
  assert.equal(String(await db.attachment.get('parts', 'b.txt')), 'two');
  assert.equal((await db.get('parts'))._rev, many.rev);
});

test('many documents go in and come out at once', async () => {
  const docs = Array.from({ length: 250 }, (_, n) => ({ _id: `bulk-${String(n).padStart(3, '0')}`, n }));
  const rows = await db.bulk({ docs });
  assert.equal(rows.length, 250);
  assert.ok(rows.every((row) => row.ok && row.rev.startsWith('1-')));
  const again = await db.bulk({ docs: docs.slice(0, 2) });
  assert.deepEqual(again.map((row) => row.error), ['conflict', 'conflict']);
  const listed = await db.list({ startkey: 'bulk-010', endkey: 'bulk-019', include_docs: true });
  assert.deepEqual(listed.rows.map((row) => row.doc.n), [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
  const fetched = await db.fetch({ keys: ['bulk-249', 'bulk-absent'] });
  assert.equal(fetched.rows[0].doc.n, 249);
  assert.equal(fetched.rows[1].error, 'not_found');
});

test('changes tell of every document once, and go on from where they stopped', async () => {
  const before = await db.changes();
  await db.insert({ v: 1 }, 'late');
  const changed = await db.changes({ since: before.last_seq, include_docs: true });
  assert.deepEqual(changed.results.map((row) => row.id), ['late']);
  assert.equal(changed.results[0].doc.v, 1);
  assert.equal(new Set(before.results.map((row) => row.id)).size, before.results.length);
});

test('a wrong password is refused', async () => {
  const stranger = new URL(url);
  stranger.password = 'wrong';
  assert.equal((await failure(Nano(String(stranger)).db.list())).statusCode, 401);
});
