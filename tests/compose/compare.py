"""Compares what was acknowledged with what is stored and with what a subscriber received.

    compare.py ACKNOWLEDGED STORED RECEIVED

ACKNOWLEDGED is what publishers.py prints, STORED what `sandbox read --json` prints, RECEIVED what mosquitto_sub prints with -v.
Every acknowledged message has to be in the other two, and for each topic those that come for the first time have to come in the
order in which they were published. More than once is allowed: at least once is the promise.
"""

import json
import sys


def numbers(pairs):
    """Of each topic the numbers in their order, without what comes again."""
    by_topic = {}
    for topic, number in pairs:
        by_topic.setdefault(topic, {}).setdefault(number)
    return {topic: list(found) for topic, found in by_topic.items()}


def lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def numbered(text):
    topic, _, payload = text.rpartition(" ")
    return [(topic, int(payload))] if payload.isdigit() else []


def records(path):
    for line in lines(path):
        record = json.loads(line)
        yield from numbered(f"{record['headers']['mqtt.topic']} {record['payload']}")


def main():
    acknowledged, stored, received = sys.argv[1:]
    acknowledged = numbers(pair for line in lines(acknowledged) for pair in numbered(line))
    if not acknowledged or min(map(len, acknowledged.values())) < 100:
        sys.exit("fewer than 100 messages of a topic were acknowledged: the test says nothing")
    found = {
        "stored": list(records(stored)),
        "received": [pair for line in lines(received) for pair in numbered(line)],
    }
    bad = False
    for where, pairs in found.items():
        first = numbers(pairs)
        for topic, wanted in acknowledged.items():
            there = first.get(topic, [])
            missing = sorted(set(wanted) - set(there))
            if missing:
                bad = True
                print(f"{topic}: acknowledged and not {where}: {len(missing)}, such as {missing[:10]}")
            if there != sorted(there):
                bad = True
                print(f"{topic}: {where} in another order than published")
    total = sum(map(len, acknowledged.values()))
    again = {where: len(pairs) - sum(map(len, numbers(pairs).values())) for where, pairs in found.items()}
    print(f"{total} acknowledged; stored more than once: {again['stored']}, received more than once: {again['received']}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
