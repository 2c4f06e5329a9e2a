// Publishes payloads on one topic, each with QoS 0 and with QoS 1, and receives them again.
//
// Usage: mqttjs_roundtrip.mjs URL CLIENT_ID TOPIC FILE OPTIONS
// FILE has one payload a line, in hex. OPTIONS is a JSON object with more options for the client, in which the values of
// ca, cert and key are names of files.
// Prints one JSON object.
import { readFileSync } from "node:fs";
import mqtt from "mqtt";

const DEADLINE = 30_000;
const [url, clientId, topic, file, more] = process.argv.slice(2);
const options = JSON.parse(more);
for (const name of ["ca", "cert", "key"]) {
  if (options[name]) {
    options[name] = readFileSync(options[name]);
  }
}
const payloads = readFileSync(file, "ascii").split("\n").filter((line) => line !== "");
const received = [];
const timer = setTimeout(() => {
  console.error(`not done in time; received ${received.length}`);
  process.exit(1);
}, DEADLINE);

let client;
try {
  client = await mqtt.connectAsync(url, { clientId, protocolVersion: 4, reconnectPeriod: 0, ...options });
} catch (error) {
  clearTimeout(timer);
  console.log(JSON.stringify({ refused: error.code ?? String(error.message) }));
  process.exit(0);
}
const complete = new Promise((resolve) => {
  client.on("message", (name, payload, packet) => {
    received.push({ topic: name, payload: payload.toString("hex"), qos: packet.qos, retain: packet.retain });
    if (received.length === 2 * payloads.length) {
      resolve();
    }
  });
});
await client.subscribeAsync(topic, { qos: 1 });
for (const payload of payloads) {
  for (const qos of [0, 1]) {
    await client.publishAsync(topic, Buffer.from(payload, "hex"), { qos });
  }
}
await complete;
clearTimeout(timer);
await client.endAsync();
console.log(JSON.stringify({ received }));
