// kafkajs's transactional producer as a program: tests/interop/transacting.py describes the commands.
//
// What kafkajs 2.2 cannot do, besides what client.js says:
// - There is no call that initializes a producer: its first transaction does. So `init` begins one, and `begin` takes it.
// - EndTxn is not repeated, and a transaction that failed to end can be neither committed nor aborted any more. So
//   whatever `commit` and `abort` raise then is fatal.
// - A producer whose send has failed knows its sequence numbers no more: that is fatal, too.
// - Offsets are committed without the group's generation, and read without waiting for pending ones (no KIP-447). So
//   `poll` begins where the group stands once more when the group was joined again, and `offsets` refuses what was read
//   before.
"use strict";

const readline = require("readline");

const client = require("./client");
const { Sender, connection, consumer, createPartitioner, hexed, keepReading, oneLine, options, unhexed } = client;

const BOUND = 20000;
const MOST = 500; // records of one poll

class Refused extends Error {
  constructor(kind, error) {
    super(error.message);
    this.kind = kind;
    this.name = error.cause?.type ?? error.type ?? error.name;
  }
}

/** Of a promise, or what it raises; fatal if it is neither in time. */
async function bounded(promise, ms = BOUND) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Refused("fatal", new Error(`not within ${ms} ms`))), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function or(kind, promise) {
  try {
    return await bounded(promise);
  } catch (error) {
    throw error instanceof Refused ? error : new Refused(kind, error);
  }
}

class Producer {
  async open(pairs) {
    await this.close();
    this.given = options(pairs);
    this.producer = connection(this.given).producer({
      createPartitioner,
      idempotent: true,
      maxInFlightRequests: 1,
      ...this.given.producer,
    });
    this.transaction = this.initialized = null;
  }

  async init() {
    const first = this.producer.connect().then(() => this.producer.transaction());
    this.initialized = await or("retriable", first);
  }

  async begin() {
    this.transaction = this.initialized ?? (await or("fatal", this.producer.transaction()));
    this.initialized = this.failed = null;
    this.sender = new Sender((what) => this.transaction.sendBatch(what), this.given.send);
    this.sent = false;
  }

  send(topic, partition, key, value) {
    this.sent = true;
    const message = { key: unhexed(key), value: unhexed(value), partition: Number(partition) };
    this.sender.push(topic, message).catch((error) => (this.failed ??= new Refused("fatal", error)));
  }

  async flush() {
    await bounded(this.sender.settled());
    if (this.failed) throw this.failed;
  }

  async commit() {
    await this.flush();
    await or("fatal", this.transaction.commit());
    this.transaction = null;
  }

  async abort() {
    await this.flush(); // what is still under way would go into the next transaction
    await or("fatal", this.transaction.abort());
    this.transaction = null;
  }

  async offsets(groupId, topic, positions) {
    await this.flush();
    const partitions = [...positions].map(([partition, offset]) => ({ partition, offset }));
    this.sent = true;
    await or("abortable", this.transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions }] }));
  }

  async close() {
    if (this.producer) await bounded(this.producer.disconnect(), 1000).catch(() => {}); // it may have failed already
  }
}

class Consumer {
  constructor(topic, given) {
    Object.assign(this, { topic, group: given.consumer.groupId, given });
    this.joined = this.followed = 0; // how often the group was joined, and at which of these times the reading began
    this.assigned = [];
    this.waiting = [];
    this.positions = new Map(); // behind what the last poll returned
    this.news = () => {};
  }

  async start() {
    const kafka = connection(this.given);
    this.admin = kafka.admin();
    this.consumer = consumer(kafka, this.given);
    await Promise.all([this.admin.connect(), this.consumer.connect()]);
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload: { memberAssignment } }) => {
      this.joined += 1;
      this.assigned = memberAssignment[this.topic] ?? [];
    });
    await this.consumer.subscribe({ topic: this.topic, ...this.given.subscribe });
    const eachBatch = async ({ batch: { partition, messages }, isStale }) => {
      if (isStale()) return;
      for (const message of messages) this.waiting.push({ partition, ...message });
      this.news();
    };
    await keepReading(this.consumer, { ...this.given.run, eachBatch });
  }

  get moved() {
    return this.joined !== this.followed;
  }

  /** Go back to where the group stands; nothing of it may be pending. */
  async rewind() {
    this.followed = this.joined;
    const [{ partitions }] = await this.admin.fetchOffsets({ groupId: this.group, topics: [this.topic] });
    const committed = new Map(partitions.map(({ partition, offset }) => [partition, offset]));
    for (const partition of this.assigned) {
      const offset = committed.get(partition) ?? "-1";
      this.consumer.seek({ topic: this.topic, partition, offset: offset === "-1" ? "0" : offset });
    }
    this.waiting = [];
  }

  async poll() {
    if (!this.waiting.length) {
      await bounded(new Promise((resolve) => (this.news = resolve)), 500).catch(() => {});
    }
    const records = this.waiting.splice(0, MOST);
    this.positions = new Map(records.map(({ partition, offset }) => [partition, String(BigInt(offset) + 1n)]));
    return records;
  }

  async stop() {
    await bounded(Promise.all([this.consumer.disconnect(), this.admin.disconnect()]));
  }
}

const producer = new Producer();
let reader = null;

async function carryOut(command, ...fields) {
  switch (command) {
    case "subscribe":
      if (reader) await reader.stop();
      reader = new Consumer(fields[0], options(fields.slice(1)));
      return bounded(reader.start());
    case "poll": {
      if (reader.moved && producer.transaction && producer.sent) throw new Refused("abortable", REBALANCED);
      if (reader.moved) await or("retriable", reader.rewind());
      const records = await reader.poll();
      return records.map((r) => [r.partition, r.offset, hexed(r.key), hexed(r.value)].join(" "));
    }
    case "rewind":
      return or("retriable", reader.rewind());
    case "offsets":
      if (reader.moved) throw new Refused("abortable", REBALANCED);
      return producer.offsets(reader.group, reader.topic, reader.positions);
    case "open":
      return producer.open(fields);
    default:
      return producer[command](...fields);
  }
}

const REBALANCED = new Error("the group was joined again");

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = ["ok", ...((await carryOut(...line.split("\t"))) ?? [])];
    } catch (error) {
      answer = ["error", error.kind ?? "fatal", error.name, oneLine(error.message)];
    }
    console.log(answer.join("\t"));
  }
  if (reader) await reader.stop();
  await producer.close();
  process.exit(); // what is left of dropped producers goes on trying
}

main();
