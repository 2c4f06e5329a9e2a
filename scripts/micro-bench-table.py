"""Makes a Markdown table and a JSON file of what gungraun has counted: micro-bench-table.py COUNTS.jsonl OUT.json

The name of a case ends in of_N: what was done N times is divided by N.
"""

import json
import sys


def row(run):
    """What is said of one case, or nothing if Callgrind did not count it."""
    counts = [
        profile["data"]["total"]["metrics"]["Ir"]["values"]
        for profile in run["profiles"]
        if profile["tool"] == "Callgrind"
    ]
    if not counts:
        return None
    case, _, operations = run["id"].rpartition("of_")
    operations = int(operations)
    now, before = counts[0]["new"], counts[0].get("old")
    return {
        "step": run["group"],
        "what": run["function_name"],
        "case": case.strip("_"),
        "operations": operations,
        "instructions": now,
        "instructions_per_operation": now / operations,
        "before_per_operation": None if before is None else before / operations,
    }


def words(name):
    return name.replace("_", " ")


def main():
    counts, out = sys.argv[1:]
    with open(counts, encoding="utf-8") as lines:
        rows = [row(json.loads(line)) for line in lines if line.strip()]
    rows = [each for each in rows if each]
    with open(out, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
    compared = any(each["before_per_operation"] for each in rows)
    print("| step | what | case | operations | instructions per operation |" + (" before | change |" if compared else ""))
    print("|---|---|---|---|---|" + ("---|---|" if compared else ""))
    for each in rows:
        now, before = each["instructions_per_operation"], each["before_per_operation"]
        line = f"| {words(each['step'])} | {words(each['what'])} | {words(each['case'])} | {each['operations']:,} | {now:,.0f} |"
        if compared and before:
            line += f" {before:,.0f} | {(now / before - 1) * 100:+.1f} % |"
        elif compared:
            line += " — | — |"
        print(line)


if __name__ == "__main__":
    main()
