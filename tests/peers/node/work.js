// Does one program of real work through memjs: work.js HOST PORT. Prints the Test Anything Protocol.

"use strict";

const assert = require("node:assert");
const crypto = require("node:crypto");
// The library is installed elsewhere than this file.
const memjs = require(require.resolve("memjs", { paths: [process.cwd()] }));

const [host, port] = process.argv.slice(2);
const SEED = process.env.VERACACHE_SEED || "20";
const MEBIBYTE = 1 << 20;
const QUIET = { log() {} };

const make = () => memjs.Client.create(`${host}:${port}`, { timeout: 10, conntimeout: 10, retries: 0, logger: QUIET });
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// Bytes that follow from a name.
function bytes(name, length) {
  const key = crypto.createHash("sha256").update(`${SEED}/${name}`).digest();
  return crypto.createCipheriv("aes-256-ctr", key, Buffer.alloc(16)).update(Buffer.alloc(length));
}

async function same(client, key, wanted) {
  const { value } = await client.get(key);
  if (wanted === null) return assert.strictEqual(value, null, key);
  assert.ok(value !== null && value.equals(Buffer.from(wanted)), key);
}

async function untilGone(client, key) {
  const deadline = Date.now() + 4000;
  while ((await client.get(key)).value !== null) {
    assert.ok(Date.now() < deadline, `${key} does not expire`);
    await sleep(50);
  }
}

const tests = {
  async "values of many sizes"(client) {
    const sizes = [0, 1, 2, 30, 100, 1000, 1023, 1024, 1025, 4096, 16384, 65535, 65536, 250000, 524288, MEBIBYTE - 600];
    for (const size of sizes) assert.strictEqual(await client.set(`size-${size}`, bytes(size, size), {}), true);
    for (const size of sizes) await same(client, `size-${size}`, bytes(size, size));
  },
  async "keys of many lengths"(client) {
    const keys = [1, 2, 7, 8, 9, 63, 64, 100, 249, 250].map((length) => "k".repeat(length));
    for (const key of keys) assert.ok(await client.set(key, key, {}));
    for (const key of keys) await same(client, key, key);
  },
  async "add and replace"(client) {
    assert.strictEqual(await client.replace("conditional", "none", {}), false);
    await same(client, "conditional", null);
    assert.strictEqual(await client.add("conditional", "first", {}), true);
    assert.strictEqual(await client.add("conditional", "second", {}), false);
    await same(client, "conditional", "first");
    assert.strictEqual(await client.replace("conditional", "third", {}), true);
    await same(client, "conditional", "third");
  },
  // Its prepend sends the opcode of append, so there is nothing to check it by.
  async "append"(client) {
    await assert.rejects(client.append("joined", "x"), /not stored/);
    assert.ok(await client.set("joined", "middle", {}));
    assert.strictEqual(await client.append("joined", " end"), true);
    await same(client, "joined", "middle end");
  },
  async "delete"(client) {
    assert.strictEqual(await client.delete("never-set"), false);
    assert.ok(await client.set("gone", "x", {}));
    assert.strictEqual(await client.delete("gone"), true);
    await same(client, "gone", null);
  },
  async "counters"(client) {
    assert.strictEqual((await client.increment("counter", 1, { initial: 10 })).value, 10);
    assert.strictEqual((await client.increment("counter", 5, {})).value, 15);
    assert.strictEqual((await client.decrement("counter", 1, {})).value, 14);
    assert.strictEqual((await client.decrement("counter", 100, {})).value, 0);
  },
  async "expiry and touch"(client) {
    assert.ok(await client.set("short", "x", { expires: 1 }));
    assert.ok(await client.set("long", "y", { expires: 1000 }));
    assert.ok(await client.set("touched", "z", { expires: 1 }));
    assert.strictEqual(await client.touch("touched", 1000), true);
    assert.strictEqual(await client.touch("never-set", 1000), false);
    await untilGone(client, "short");
    await sleep(1000);
    await same(client, "long", "y");
    await same(client, "touched", "z");
  },
  async "many requests under way at once"(client) {
    const keys = Array.from({ length: 500 }, (_, n) => `multi-${n}`);
    await Promise.all(keys.map((key, n) => client.set(key, bytes(key, (n * 13) % 3000), {})));
    await Promise.all(keys.map((key, n) => same(client, key, bytes(key, (n * 13) % 3000))));
    await Promise.all(keys.map((key) => same(client, `absent-${key}`, null)));
  },
  async "a value that is too large"(client) {
    assert.ok(await client.set("large", "small", {}));
    const refused = await client.set("large", bytes("large", MEBIBYTE + 10), {}).then((stored) => !stored, () => true);
    assert.ok(refused);
    await same(client, "large", null);
    assert.ok(await client.set("large", "small again", {}));
    await same(client, "large", "small again");
  },
  async "several connections at once"(client) {
    await client.delete("shared");
    assert.strictEqual((await client.increment("shared", 1, { initial: 0 })).value, 0);
    await Promise.all(
      Array.from({ length: 8 }, async (_, number) => {
        const mine = make();
        for (let turn = 0; turn < 200; turn++) {
          const value = bytes(`${number}-${turn}`, (turn * 31) % 4000);
          assert.ok(await mine.set(`mine-${number}`, value, {}));
          await same(mine, `mine-${number}`, value);
          assert.ok((await mine.increment("shared", 1, {})).success);
        }
        mine.close();
      }),
    );
    assert.strictEqual((await client.increment("shared", 1, {})).value, 8 * 200 + 1);
  },
  async "flush"(client) {
    assert.ok(await client.set("flushed", "x", {}));
    await client.flush();
    await same(client, "flushed", null);
  },
};

(async () => {
  const names = Object.keys(tests);
  console.log(`# seed ${SEED}\n1..${names.length}`);
  let failed = false;
  for (const [index, name] of names.entries()) {
    const client = make();
    try {
      await tests[name](client);
      console.log(`ok ${index + 1} - ${name}`);
    } catch (error) {
      failed = true;
      const where = (error.stack || "").split("\n").find((line) => line.includes("work.js"));
      console.log(`not ok ${index + 1} - ${name}: ${String(error.message).split("\n")[0].slice(0, 200)} ${(where || "").trim()}`);
    } finally {
      client.close();
    }
  }
  process.exitCode = failed ? 1 : 0;
})();
