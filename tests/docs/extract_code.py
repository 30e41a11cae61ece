#!/usr/bin/env python3
"""The C++ code of docs/guide and docs/apex.md: one program of all pages, and a test per page that runs it.

    extract_code.py extract FOLDER PAGE...   writes FOLDER/PAGE.cc for each page and FOLDER/main.cc, which runs a
                                             section of a page; prints the paths, separated by semicolons
    extract_code.py check PROGRAM PAGE       runs all sections of the page, and compares their output with the page

The ```cpp blocks of a page are the body of one function, in the order of the page, so that a block sees the names of
those before it. Its #include lines and namespace aliases move to the top of the file. A ```text block right after a
block of code is what that code prints: "..." stands for anything in a line, and a line of "..." for any lines.

A block with a main() is a section of its own. A comment in the line above a block says otherwise:

    <!-- docs: top-level -->      at namespace scope: functions and classes
    <!-- docs: new-process -->    begins a section, which runs in a process of its own
    <!-- docs: compile-only -->   compiled, and not run: it needs files or devices that a test does not have
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MARKERS = {"", "top-level", "new-process", "compile-only"}
BLOCK = re.compile(r"(?:^<!-- docs: ([^\n]*) -->\n)?^```cpp\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
                   re.MULTILINE | re.DOTALL)
HOISTED = re.compile(r"^(?:#include [^\n]*|namespace \w+ = [\w:]+;[^\n]*)\n", re.MULTILINE)
SEPARATOR = "\x1d"  # is printed before each block of code
SECONDS = 120       # for a section


@dataclasses.dataclass
class Block:
    marker: str
    code: str
    line: int
    output: str | None

    @property
    def program(self):
        return "int main(" in self.code


def blocks_of(page):
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        marker, code, output = match.groups()
        if (marker or "") not in MARKERS:
            sys.exit(f"{page.name}: expected a marker of {sorted(MARKERS)}, got '{marker}'")
        found.append(Block(marker or "", code, text.count("\n", 0, match.start(2)) + 1, output))
    if len(found) != len(re.findall(r"^```cpp", text, re.MULTILINE)):
        sys.exit(f"{page.name}: a block of code has no end, or its language is not exactly 'cpp'")
    if sum(block.marker != "" for block in found) != text.count("<!-- docs:"):
        sys.exit(f"{page.name}: expected each '<!-- docs: ... -->' in the line above a block of code")
    return found


def sections_of(page):
    """The blocks that run, by process."""
    sections = []
    shared = None
    for block in blocks_of(page):
        if block.marker == "top-level":
            continue
        if block.program:
            sections.append([block])
        elif shared is None or block.marker == "new-process":
            shared = [block]
            sections.append(shared)
        else:
            shared.append(block)
    return sections


def name_of(page):
    """The path from the root of the repository: docs/guide/PAGE.md."""
    path = page.as_posix()
    return path[path.rindex("/docs/") + 1:]


def body_of(block, page):
    """The block without what moves to the top, line by line as in the page."""
    code = HOISTED.sub("\n", block.code)
    return f'#line {block.line} "{name_of(page)}"\n{code}'


def source_of(page):
    hoisted = {"#include <iostream>", "#include <tandem/tandem.h>", "namespace td = tandem;"}
    top = []
    for block in blocks_of(page):
        hoisted.update(line.split("  //")[0].strip() for line in HOISTED.findall(block.code))
        if block.marker == "top-level":
            top.append(body_of(block, page))
    sections = sections_of(page)
    for number, section in enumerate(sections):
        if section[0].program:
            code = body_of(section[0], page).replace("int main(", "void program(")
            top.append(f"namespace program_{number} {{\n{code}}}\n")
    top.append(f"void {page.stem}_section(int section) {{\n")
    for number, section in enumerate(sections):
        top.append(f"if (section == {number}) {{\n")
        for block in section:
            top.append(f"std::cout << '\\x{ord(SEPARATOR):x}' << std::flush;\n")
            if block.program:
                top.append(f"program_{number}::program();\n")
            elif block.marker == "compile-only":
                top.append(f"if (false) {{\n{body_of(block, page)}}}\n")
            else:
                top.append(body_of(block, page))
        top.append("}\n")
    top.append("}\n")
    return "\n".join([f"// From {name_of(page)}.", *sorted(hoisted), "", "namespace {", *top, "}",
                      f"void {page.stem}(int section) {{ {page.stem}_section(section); }}", ""])


def main_of(pages):
    calls = [f'  if (page == "{page.stem}") return {page.stem}(section), 0;' for page in pages]
    return "\n".join(["// Runs a section of a page of docs/guide: PROGRAM PAGE SECTION.", "#include <cstdlib>",
                      "#include <string>", *(f"void {page.stem}(int section);" for page in pages),
                      "int main(int argc, char** argv) {", "  if (argc != 3) return 2;",
                      "  const std::string page = argv[1];", "  const int section = std::atoi(argv[2]);", *calls,
                      "  return 2;", "}", ""])


def write_if_changed(path, text):
    """So that a page that did not change is not compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def extract(folder, pages):
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    pages = [page for page in pages if blocks_of(page)]
    for name, text in [*((page.stem, source_of(page)) for page in pages), ("main", main_of(pages))]:
        path = folder / f"{name}.cc"
        write_if_changed(path, text)
        paths.append(str(path))
    print(";".join(paths), end="")


def pattern_of(output):
    """A regular expression of what a page shows."""
    lines = []
    for line in output.splitlines():
        if line.strip() == "...":
            lines.append(r"(?:[^\n]*\n)*?")
        else:
            lines.append("[^\n]*".join(re.escape(part) for part in line.split("...")) + "\n")
    return re.compile("".join(lines))


def check(program, page):
    failed = []
    sections = sections_of(page)
    for number, section in enumerate(sections):
        with tempfile.TemporaryDirectory() as work:
            result = subprocess.run([program, page.stem, str(number)], cwd=work, capture_output=True, text=True,
                                    env={**os.environ, "TANDEM_EMULATED_GPUS": ""}, timeout=SECONDS)
        outputs = result.stdout.split(SEPARATOR)[1:]
        last = section[max(0, len(outputs) - 1)]
        if result.returncode != 0:
            failed.append(f"{page.name}:{last.line}: the code ended with {result.returncode}\n{result.stderr}")
            continue
        for block, output in zip(section, outputs, strict=True):
            if block.output is not None and not pattern_of(block.output).fullmatch(output):
                failed.append(f"{page.name}:{block.line}: the code prints\n{output}\n"
                              f"and the page shows\n{block.output}")
    print(*failed, sep="\n")
    print(f"{page.name}: {len(sections)} sections, {len(failed)} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "extract":
        extract(pathlib.Path(sys.argv[2]), [pathlib.Path(page) for page in sys.argv[3:]])
    else:
        sys.exit(check(pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])))
