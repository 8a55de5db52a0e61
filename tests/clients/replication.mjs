// PouchDB that keeps in step with a running settee (SETTEE_URL), live and after restarts.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { after, test } from 'node:test';
import PouchDB from 'pouchdb';
import { ask, leaves, local, remote, until } from './live.mjs';

const running = [];
const rev = (c) => `1-${c.repeat(32)}`;

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
  // The node that is about to end answers for a moment still: the next one is the one that has not been up for so long.
  const uptime = async () => (await ask(0, 'GET', '/_node/_local/_system')).body.uptime;
  await until('a node that is up for two seconds', async () => (await uptime()) >= 2);
  const [before, began] = [await uptime(), Date.now()];
  await ask(0, 'POST', '/_node/_local/_restart');
  await until('the node', async () => (await uptime()) < before + (Date.now() - began) / 1000 - 1);
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
