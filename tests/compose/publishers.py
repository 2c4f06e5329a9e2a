"""Publishes numbered messages with QoS 1 on several connections, until standard input ends.

    publishers.py HOST PORT TOPIC... > acknowledged

Each topic has a client of its own, with at most WINDOW messages on their way. A client whose connection breaks comes back and
sends again what was not acknowledged, with DUP. For each PUBACK one line goes to standard output: the topic and the payload, `a/b 17`.

When standard input ends nothing new is sent, and the end comes when everything was acknowledged: with 0 then, and with 1 when that
takes longer than PATIENCE.
"""

import queue
import sys
import threading
import time

import paho.mqtt.client as mqtt

WINDOW = 20
PAUSE = 0.005
PATIENCE = 90

stop = threading.Event()
output = threading.Lock()


def new_client(client_id):
    # The second form is that of paho-mqtt 1.
    if hasattr(mqtt, "CallbackAPIVersion"):
        return mqtt.Client(mqtt.CallbackAPIVersion.VERSION1, client_id=client_id)
    return mqtt.Client(client_id=client_id)


class Publisher(threading.Thread):
    def __init__(self, host, port, topic):
        super().__init__()
        self.topic = topic
        self.payloads = {}
        self.acknowledged = queue.SimpleQueue()
        self.client = new_client("publisher-" + topic.replace("/", "-"))
        self.client.max_inflight_messages_set(WINDOW)
        self.client.reconnect_delay_set(1, 1)
        # Called under a lock of the library's, which publish() takes too: what is to be done is done in this object's thread.
        self.client.on_publish = lambda _client, _data, mid: self.acknowledged.put(mid)
        self.client.connect(host, port)

    def take_acknowledged(self, patience):
        """Tells of everything that was acknowledged; if there is nothing, waits for it so long."""
        try:
            mid = self.acknowledged.get(timeout=patience)
            while True:
                payload = self.payloads.pop(mid)
                with output:
                    print(self.topic, payload, flush=True)
                mid = self.acknowledged.get_nowait()
        except queue.Empty:
            pass

    def run(self):
        self.client.loop_start()
        number = 0
        while not stop.is_set():
            if len(self.payloads) < WINDOW:
                message = self.client.publish(self.topic, str(number), qos=1)
                self.payloads[message.mid] = number
                number += 1
            self.take_acknowledged(PAUSE)
        deadline = time.monotonic() + PATIENCE
        while self.payloads and time.monotonic() < deadline:
            self.take_acknowledged(0.1)
        self.client.disconnect()
        self.client.loop_stop()


def main():
    host, port, *topics = sys.argv[1:]
    publishers = [Publisher(host, int(port), topic) for topic in topics]
    for publisher in publishers:
        publisher.start()
    sys.stdin.read()
    stop.set()
    for publisher in publishers:
        publisher.join()
    for publisher in publishers:
        if publisher.payloads:
            print(f"{publisher.topic}: {len(publisher.payloads)} messages never acknowledged", file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main()
