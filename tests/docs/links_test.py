#!/usr/bin/env python3
"""Links between pages of the documentation lead to files and headings, and docs/guide/README.md lists its pages.

    links_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
PAGES = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page):
    """The headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        broken = []
        for page in PAGES:
            for link in LINK.findall(CODE.sub("", page.read_text())):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                if not target.exists() or (anchor and anchor not in anchors(target)):
                    broken.append(f"{page.relative_to(SOURCE)}: {link}")
        self.assertEqual(broken, [])

    def test_the_guide_lists_its_pages(self):
        guide = SOURCE / "docs/guide"
        listed = set(LINK.findall((guide / "README.md").read_text()))
        self.assertEqual([page.name for page in sorted(guide.glob("*.md"))
                          if page.name != "README.md" and page.name not in listed], [])


if __name__ == "__main__":
    unittest.main()
