"""Counts how many lines a program that trains on one device and its distributed twin differ in.

    count_changes.py EXAMPLES TWINS

Every TWINS/NN_one_device.cpp is compared with the example of that number: at most ten lines. Comments,
blank lines, lone braces and the blanks inside lines do not count. A statement that is written over several lines
counts as one.
"""

import difflib
import pathlib
import re
import sys

LIMIT = 10
TWINS = {"04", "06", "09"}


def statements(path):
    result, statement = [], ""
    for line in path.read_text().splitlines():
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


def main():
    examples, twins = map(pathlib.Path, sys.argv[1:])
    failed = False
    found = sorted(twins.glob("*_one_device.cpp"))
    if {path.name[:2] for path in found} != TWINS:
        sys.exit(f"expected the twins {sorted(TWINS)}")
    for twin in found:
        number = twin.name[:2]
        (example,) = examples.glob(f"{number}_*.cpp")
        different = changes(statements(twin), statements(example))
        count = sum(max(len(a), len(b)) for a, b in different)
        print(f"{example.name}: {count} lines")
        if not 0 < count <= LIMIT:
            failed = True
            for a, b in different:
                print(*(f"  - {line}" for line in a), *(f"  + {line}" for line in b), sep="\n")
    if failed:
        sys.exit(f"expected at most {LIMIT} lines")


if __name__ == "__main__":
    main()
