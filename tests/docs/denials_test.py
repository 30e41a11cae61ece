#!/usr/bin/env python3
"""Tables of docs/ deny nothing that exists: rows and lines that say "does not exist" name nothing that a public header
declares.

    denials_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
HEADERS = "\n".join(re.sub(r"//.*", "", header.read_text()) for header in (SOURCE / "include" / "tandem").glob("*.h"))
# Words of other libraries' paths, which say nothing of their own.
GENERAL = {"tf", "td", "torch", "keras", "hvd", "nn", "optim", "cuda", "data", "distribute"}


def denied(page):
    """The names in code that each line with a denial begins with: those of a table's first column."""
    for line in page.read_text().splitlines():
        if re.search(r"\| (\w+ )?do(es)? not exist|do(es)? not exist yet", line):
            subject = line.split("|")[1] if line.startswith("|") else line
            for code in re.findall(r"`([^`]+)`", subject):
                yield from (set(re.findall(r"[A-Za-z]\w+", code)) - GENERAL)


class Denials(unittest.TestCase):
    def test_are_true(self):
        wrong = []
        for page in sorted((SOURCE / "docs").rglob("*.md")):
            for name in denied(page):
                if re.search(rf"\b{name}\b", HEADERS):
                    wrong.append(f"{page.relative_to(SOURCE)}: {name}")
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
