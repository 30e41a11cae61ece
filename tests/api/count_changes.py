"""Counts the lines that differ between a program that trains on one device and its distributed twin.

    count_changes.py EXAMPLES TWINS

Compares every TWINS/NN_one_device.cpp with the example of that number, if there is one, and allows ten lines.
Comments, blank lines, lone braces and spaces inside lines do not count. A statement over several lines counts as one.
Code of an example after its training, which only demonstrates something, is left out (UNTIL).
"""

import difflib
import pathlib
import re
import sys

LIMIT = 10
TWINS = {"04", "06", "09", "10", "12"}
UNTIL = {"10": "td::Tensor mean = hvd::allreduce("}


def statements(path, until=None):
    text = path.read_text()
    if until:
        if until not in text:
            sys.exit(f"{path.name} lacks '{until}'")
        text = text[:text.index(until)]
    result, statement = [], ""
    for line in text.splitlines():
        code = " ".join(re.sub(r"(^|\s)//.*", "", line).split())
        if not code:
            continue
        statement = f"{statement} {code}".strip()
        if code.startswith("#") or code[-1] in ";{}":
            if statement not in "{}":
                result.append(statement)
            statement = ""
    return result


def changes(one, other):
    blocks = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return [(one[a:b], other[c:d]) for kind, a, b, c, d in blocks if kind != "equal"]


def few_changes(twin, example):
    different = changes(statements(twin), statements(example, UNTIL.get(twin.name[:2])))
    count = sum(max(len(a), len(b)) for a, b in different)
    print(f"{example.name}: {count} lines")
    if 0 < count <= LIMIT:
        return True
    for a, b in different:
        print(*(f"  - {line}" for line in a), *(f"  + {line}" for line in b), sep="\n")
    return False


def main():
    examples, twins = map(pathlib.Path, sys.argv[1:])
    found = {path.name[:2]: path for path in twins.glob("*_one_device.cpp")}
    if set(found) != TWINS:
        sys.exit(f"expected the twins {sorted(TWINS)}")
    pairs = [(found[path.name[:2]], path) for path in sorted(examples.glob("*.cpp")) if path.name[:2] in found]
    if not all([few_changes(twin, example) for twin, example in pairs]):
        sys.exit(f"expected at most {LIMIT} lines")


if __name__ == "__main__":
    main()
