// kafkajs as a peer: `produce key=value…`, `consume TOPIC key=value…` or `join TOPIC key=value…`.
//
// Messages come on standard input, outcomes or records go to standard output, as tests/interop/lines.py describes; what
// `join` prints, tests/interop/members.py does.
"use strict";

const { randomUUID } = require("crypto");
const readline = require("readline");

const client = require("./client");
const { Sender, connection, consumer, createPartitioner, hexed, keepReading, oneLine, options, unhexed } = client;

async function produce(given) {
  const producer = connection(given).producer({ createPartitioner, maxInFlightRequests: 1, ...given.producer });
  await producer.connect();
  const sender = new Sender((what) => producer.sendBatch(what), given.send);
  let printed = Promise.resolve();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [topic, message] = parsed(line);
    const outcome = sender.push(topic, message).then(
      ([partition, offset]) => `ok\t${partition}\t${offset}`,
      (error) => `error\t${error.cause?.type ?? error.type ?? error.name}\t${oneLine(error.message)}`,
    );
    printed = Promise.all([outcome, printed]).then(([text]) => console.log(text));
  }
  await printed;
  await producer.disconnect();
}

function parsed(line) {
  const [topic, partition, key, value, headers, timestamp] = line.split("\t");
  const message = { key: unhexed(key), value: unhexed(value), headers: {} };
  if (partition) message.partition = Number(partition);
  if (timestamp) message.timestamp = timestamp;
  for (const [name, header] of headers ? headers.split(",").map((pair) => pair.split("=")) : []) {
    message.headers[name] = unhexed(header);
  }
  return [topic, message];
}

function printable(partition, { offset, timestamp, key, value, headers }) {
  const pairs = Object.entries(headers).flatMap(([name, held]) => [held].flat().map((each) => `${name}=${hexed(each)}`));
  return [partition, offset, timestamp, hexed(key), hexed(value), pairs.join(",")].join("\t");
}

async function consume(topic, given) {
  const kafka = connection(given);
  const admin = kafka.admin();
  await admin.connect();
  const ends = new Map((await admin.fetchTopicOffsets(topic)).map((each) => [each.partition, BigInt(each.high)]));
  await admin.disconnect();
  const missing = new Set([...ends].filter(([, end]) => end > 0n).map(([partition]) => partition));
  if (!missing.size) return;
  const reader = consumer(kafka, { consumer: { groupId: `kafkajs-${randomUUID()}`, ...given.consumer } });
  await reader.connect();
  await reader.subscribe({ topic, fromBeginning: true });
  await new Promise((resolve, reject) => {
    // Also for batches of which nothing is left to be read, such as aborted ones.
    reader.on(reader.events.END_BATCH_PROCESS, ({ payload: { partition, lastOffset } }) => {
      if (BigInt(lastOffset) + 1n >= ends.get(partition)) missing.delete(partition);
      if (!missing.size) resolve();
    });
    const eachBatch = async ({ batch }) => {
      for (const message of batch.messages) {
        if (BigInt(message.offset) < ends.get(batch.partition)) console.log(printable(batch.partition, message));
      }
    };
    reader.run({ autoCommit: false, eachBatch }).catch(reject);
  });
  await reader.disconnect();
}

async function join(topic, given) {
  const member = consumer(connection(given), given);
  member.on(member.events.GROUP_JOIN, ({ payload: { memberAssignment } }) => {
    console.log(`assigned\t${(memberAssignment[topic] ?? []).sort((a, b) => a - b).join(" ")}`);
  });
  await member.connect();
  await member.subscribe({ topic, ...given.subscribe });
  const eachBatch = async ({ batch: { partition, messages }, isStale }) => {
    if (isStale()) return;
    for (const message of messages) console.log(`record\t${printable(partition, message)}`);
    const offset = String(BigInt(messages.at(-1).offset) + 1n);
    await member.commitOffsets([{ topic, partition, offset }]);
  };
  await keepReading(member, { ...given.run, eachBatch });
  for await (const _ of process.stdin);
  await member.disconnect();
}

async function main([role, ...rest]) {
  if (role === "produce") await produce(options(rest));
  else await { consume, join }[role](rest[0], options(rest.slice(1)));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
