"""Publishes payloads on one topic, each with QoS 0 and with QoS 1, and receives them again.

Usage: paho_roundtrip.py HOST PORT CLIENT_ID TOPIC FILE [CA CERTIFICATE KEY]
FILE has one payload a line, in hex. With CA and the rest it speaks TLS.
Prints one JSON object. Works with Paho 1.x and 2.x.
"""

import json
import sys
import threading

import paho.mqtt.client as mqtt

DEADLINE = 30

host, port, client_id, topic, file, *tls = sys.argv[1:]
with open(file, encoding="ascii") as lines:
    payloads = [line.strip() for line in lines]
subscribed = threading.Event()
complete = threading.Event()
received = []
connections = []


def on_connect(client, userdata, flags, reason):
    connections.append(reason if isinstance(reason, int) else reason.value)
    client.subscribe(topic, 1)


def on_subscribe(client, userdata, mid, granted):
    subscribed.set()


def on_message(client, userdata, message):
    received.append({
        "topic": message.topic,
        "payload": message.payload.hex(),
        "qos": message.qos,
        "retain": bool(message.retain),
    })
    if len(received) == 2 * len(payloads):
        complete.set()


if hasattr(mqtt, "CallbackAPIVersion"):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION1, client_id, protocol=mqtt.MQTTv311)
else:
    client = mqtt.Client(client_id, protocol=mqtt.MQTTv311)
client.on_connect = on_connect
client.on_subscribe = on_subscribe
client.on_message = on_message
if tls:
    client.tls_set(*tls)
client.connect(host, int(port), keepalive=10)
client.loop_start()
if not subscribed.wait(DEADLINE):
    sys.exit("no SUBACK")
for payload in payloads:
    for qos in (0, 1):
        info = client.publish(topic, bytes.fromhex(payload), qos)
        info.wait_for_publish(DEADLINE)
        if not info.is_published():
            sys.exit(f"no PUBACK for {payload[:32]}")
complete.wait(DEADLINE)
client.disconnect()
client.loop_stop()
print(json.dumps({"connections": connections, "received": received}))
