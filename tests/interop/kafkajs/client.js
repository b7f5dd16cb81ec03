// kafkajs with Kafka's own names for settings, and what both programs need of it.
//
// What kafkajs 2.2 cannot do, and what the programs do about it:
// - A request that failed gives its sequence numbers back, also for the partitions in which it was stored, and the next
//   send takes them: with several sends under way a broken connection loses records and doubles others, although the
//   producer is idempotent. So there is one send at a time (`Sender`).
// - A send that is repeated asks the partitioner again, and a record without a key goes to another partition: then it may
//   be there twice. Tests that count name the partition.
// - When the leader of a partition moves during a send, to a broker that has answered already, the records of that
//   partition are not sent, and nothing is said of them. `Sender` sends them again.
// - It has no batches of its own: what a call sends is one request a broker, and one bad record fails all of them.
// - A header whose value is null cannot be sent; of compressions it has gzip, for the others it wants other packages.
// - There is no consumer without a group, and no administrator's call that tells the last stable offset.
// - As it takes the aborted transactions of a fetch for sorted by their first offsets, which they are not, it shows
//   aborted records where transactions of several producers overlap. What one producer has written it reads well.
// - It takes a broker for connected before it has asked that for its versions. Where the connection breaks between the
//   two, each request fails with "Broker not connected", and is not tried again: see `isConnected`.
// - What it has of a response when the connection breaks it takes for the beginning of what comes on the next one: then
//   it waits for a frame of any size, or ends with ERR_BUFFER_OUT_OF_BOUNDS. See `connect`.
// - Its assignors are its own ("RoundRobinAssigner"), so that it shares a group with nobody: `roundRobin` is Kafka's.
"use strict";

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";

const { readFileSync } = require("fs");

const { AssignerProtocol, CompressionTypes, Kafka, Partitioners, logLevel } = require("kafkajs");
const Broker = require("kafkajs/src/broker");
const Connection = require("kafkajs/src/network/connection");

const { isConnected } = Broker.prototype;
Broker.prototype.isConnected = function () {
  return this.lookupRequest.name !== "notInitializedLookup" && isConnected.call(this);
};

const { connect } = Connection.prototype;
Connection.prototype.connect = function () {
  if (!this.isConnected()) Object.assign(this, { chunks: [], bytesBuffered: 0, bytesNeeded: 4 });
  return connect.call(this);
};

const number = Number;
const truth = (text) => text === "true";

// Kafka's name -> whose option it is, kafkajs's name, and how it is read.
const SETTINGS = {
  "bootstrap.servers": ["client", "brokers", (text) => text.split(",")],
  "sasl.mechanism": ["sasl", "mechanism", (text) => text.toLowerCase()],
  "sasl.username": ["sasl", "username", String],
  "sasl.password": ["sasl", "password", String],
  "sasl.oauthbearer.token": ["sasl", "oauthBearerProvider", (value) => async () => ({ value })],
  "ssl.ca.location": ["ssl", "ca", (path) => [readFileSync(path)]],
  "ssl.certificate.location": ["ssl", "cert", (path) => readFileSync(path)],
  "ssl.key.location": ["ssl", "key", (path) => readFileSync(path)],
  "retries": ["retry", "retries", number],
  "retry.backoff.ms": ["retry", "initialRetryTime", number],
  "retry.backoff.max.ms": ["retry", "maxRetryTime", number],
  "enable.idempotence": ["producer", "idempotent", truth],
  "transactional.id": ["producer", "transactionalId", String],
  "transaction.timeout.ms": ["producer", "transactionTimeout", number],
  "compression.type": ["send", "compression", (text) => CompressionTypes[text.toUpperCase()]],
  "records.per.send": ["send", "limit", number], // of the programs: see `Sender`
  "group.id": ["consumer", "groupId", String],
  "session.timeout.ms": ["consumer", "sessionTimeout", number],
  "heartbeat.interval.ms": ["consumer", "heartbeatInterval", number],
  "metadata.max.age.ms": ["consumer", "metadataMaxAge", number],
  "isolation.level": ["consumer", "readUncommitted", (text) => text !== "read_committed"],
  "auto.offset.reset": ["subscribe", "fromBeginning", (text) => text === "earliest"],
  "enable.auto.commit": ["run", "autoCommit", truth],
};

/** `key=value` arguments, by whose options they are. */
function options(pairs) {
  const found = { client: {}, ssl: {}, sasl: {}, retry: {}, producer: {}, send: {}, consumer: {}, subscribe: {}, run: {} };
  for (const pair of pairs) {
    const at = pair.indexOf("=");
    const [whose, name, read] = SETTINGS[pair.slice(0, at)] ?? [];
    if (name === undefined) throw new Error(`kafkajs has no setting ${pair}`);
    found[whose][name] = read(pair.slice(at + 1));
  }
  return found;
}

/** A client that goes on while the broker is away. */
function connection(given) {
  return new Kafka({
    ...given.client,
    ...(given.ssl.ca ? { ssl: given.ssl } : {}),
    ...(given.sasl.mechanism ? { sasl: given.sasl } : {}),
    clientId: "kafkajs",
    logLevel: logLevel.WARN,
    logCreator: () => ({ label, log }) => process.stderr.write(`${label} ${JSON.stringify(log)}\n`),
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 1000, ...given.retry },
  });
}

/** Sends one request at a time, of all that has come meanwhile, up to a limit. */
class Sender {
  /** @param send takes what kafkajs's `sendBatch` does. */
  constructor(send, { limit = 1000, ...given }) {
    Object.assign(this, { _send: send, _given: given, _limit: limit, _waiting: [], _running: null });
  }

  /** Resolves to `[partition, offset]`. */
  push(topic, message) {
    return new Promise((resolve, reject) => {
      this._waiting.push({ topic, message, resolve, reject });
      this._running ??= this._run();
    });
  }

  /** All that was pushed has been settled. */
  async settled() {
    while (this._running) await this._running;
  }

  async _run() {
    await null; // what is pushed in the same breath goes together
    while (this._waiting.length) {
      let part = this._waiting.splice(0, this._limit);
      try {
        while (part.length) part = await this._sendAll(part);
      } catch (error) {
        for (const { reject } of part) reject(error);
      }
    }
    this._running = null;
  }

  /** Returns those that were not sent. */
  async _sendAll(part) {
    const topics = new Map();
    for (const { topic, message } of part) topics.set(topic, [...(topics.get(topic) ?? []), message]);
    const topicMessages = [...topics].map(([topic, messages]) => ({ topic, messages }));
    const places = await this._send({ topicMessages, ...this._given });
    const next = new Map(places.map((place) => [`${place.topicName}-${place.partition}`, BigInt(place.baseOffset)]));
    return part.filter(({ topic, message, resolve }) => {
      const place = `${topic}-${chosen.get(message)}`;
      const offset = next.get(place);
      if (offset === undefined) return true;
      resolve([chosen.get(message), offset]);
      next.set(place, offset + 1n);
      return false;
    });
  }
}

const chosen = new WeakMap();

/** Java's partitioner; remembers in `chosen` what it said, which kafkajs does not tell. */
function createPartitioner() {
  const choose = Partitioners.DefaultPartitioner();
  return (asked) => {
    const partition = choose(asked);
    chosen.set(asked.message, partition);
    return partition;
  };
}

/** Kafka's "roundrobin", for a group whose members all read the same topics. */
function roundRobin({ cluster }) {
  return {
    name: "roundrobin",
    version: 0,
    protocol({ topics }) {
      return { name: this.name, metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics }) };
    },
    async assign({ members, topics }) {
      const ids = members.map((member) => member.memberId).sort();
      const shares = new Map(ids.map((id) => [id, {}]));
      let turn = 0;
      for (const topic of topics.slice().sort()) {
        for (const { partitionId } of cluster.findTopicPartitionMetadata(topic)) {
          (shares.get(ids[turn++ % ids.length])[topic] ??= []).push(partitionId);
        }
      }
      return ids.map((memberId) => ({
        memberId,
        memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment: shares.get(memberId) }),
      }));
    },
  };
}

/** A consumer that is not subscribed yet. */
function consumer(kafka, given) {
  return kafka.consumer({
    maxWaitTimeInMs: 100, // it cannot leave a group while a fetch waits
    rebalanceTimeout: 10000,
    ...given.consumer,
    partitionAssigners: [roundRobin],
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 1000, restartOnFailure: async () => true },
  });
}

/** Read. kafkajs gives up after some errors, such as a coordinator that no broker names: then begin again. */
async function keepReading(reader, given) {
  reader.on(reader.events.CRASH, async ({ payload: { restart } }) => {
    while (!restart) {
      try {
        await reader.connect();
        return await reader.run(given);
      } catch {
        // The broker may still be down: the test kills it, and bounds the whole.
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
    }
  });
  await reader.run(given);
}

const hexed = (data) => (data === null || data === undefined ? "-" : data.toString("hex"));
const unhexed = (text) => (text === "-" ? null : Buffer.from(text, "hex"));
const oneLine = (text) => String(text).split(/\s+/).join(" ");

module.exports = { Sender, connection, consumer, createPartitioner, hexed, keepReading, oneLine, options, unhexed };
