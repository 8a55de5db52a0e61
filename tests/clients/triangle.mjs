// A triangle of two settees, each one node or a cluster (SETTEE_URL, SETTEE_OTHER_URL), and PouchDB: random edits everywhere,
// and in the end the same leaves.
import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { after, test } from 'node:test';
import { ask, leaves, local, remote, run, servers, until } from './live.mjs';

const running = [];
after(() => Promise.all(running.map((sync) => sync.cancel())));

test('a triangle of two servers and PouchDB comes to the same leaves', async () => {
  const seed = Number(process.env.SETTEE_SEED ?? run % 100000);
  let state = seed;
  /** A number below `n` (Park and Miller). */
  const random = (n) => (state = (state * 48271) % 2147483647) % n;
  // The nodes of a cluster have met before they are asked for anything.
  for (const [server, urls] of servers.entries()) {
    for (const node of urls.keys()) {
      const nodes = async () => (await ask(server, 'GET', '/_membership', undefined, { node })).body.all_nodes;
      await until('all nodes', async () => (await nodes()).length === urls.length);
    }
  }
  const here = local('triangle');
  const nodes = servers.map((urls, server) => urls.map((_, node) => remote('triangle', server, node)));
  const [[one], [two]] = nodes;
  const places = [here, ...nodes.flat()];
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
    const [db, id] = [places[random(places.length)], ids[random(ids.length)]];
    const known = await db.get(id).catch(() => ({ _id: id }));
    const kind = random(10);
    // A conflict or a document that went away meanwhile: another writer was quicker.
    const late = (e) => assert.ok([404, 409].includes(e.status), e);
    if (kind === 0 && known._rev) await db.remove(known).catch(late);
    else if (kind === 1) await db.putAttachment(id, `a${random(3)}`, known._rev, Buffer.from(`x${n}`), 'text/plain').catch(late);
    else await db.put({ ...known, v: n }).catch(late);
  }
  const same = async () => {
    const found = (await Promise.all(places.map(leaves))).map((of) => JSON.stringify(of));
    return new Set(found).size === 1;
  };
  await until(`the same leaves everywhere (seed ${seed})`, same);
  assert.ok(Object.keys(await leaves(one)).length > 10);
  syncs.forEach((sync) => sync.cancel());
});
