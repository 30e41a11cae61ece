#!/usr/bin/env python3
"""Extracts the complete programs of README.md and docs/, which are built against the installed library, and runs them.

    docs_programs.py extract FOLDER FILE...    writes each block of C++ that has a main() as FOLDER/PAGE_N.cpp, and the
                                               block of text after it, which shows its output, as FOLDER/PAGE_N.txt;
                                               prints the programs' paths, separated by semicolons
    docs_programs.py check FOLDER BUILD        runs each, and compares what it prints with the page
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```cpp\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def extract(folder, pages):
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.cpp"), *folder.glob("*.txt")]:
        old.unlink()
    programs = []
    for page in pages:
        blocks = [block for block in BLOCK.findall(page.read_text()) if "int main(" in block[0]]
        for number, (code, output) in enumerate(blocks, 1):
            program = folder / f"{page.stem.lower()}_{number}.cpp"
            program.write_text(f"// From {page.name}.\n{code}")
            if output:
                program.with_suffix(".txt").write_text(output)
            programs.append(str(program))
    print(";".join(programs), end="")


def check(folder, build):
    failed = []
    programs = sorted(folder.glob("*.cpp"))
    for program in programs:
        with tempfile.TemporaryDirectory() as work:
            result = subprocess.run([build / program.stem], cwd=work, env=dict(os.environ, TANDEM_EMULATED_GPUS=""),
                                    capture_output=True, text=True, timeout=250)
        expected = program.with_suffix(".txt")
        if result.returncode != 0:
            failed.append(f"{program.name} ended with {result.returncode}\n{result.stderr}")
        elif expected.exists() and result.stdout != expected.read_text():
            failed.append(f"{program.name} prints\n{result.stdout}\nand the page shows\n{expected.read_text()}")
    print(*failed, sep="\n")
    print(f"{len(programs) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not programs else 0


if __name__ == "__main__":
    if sys.argv[1] == "extract":
        extract(pathlib.Path(sys.argv[2]), [pathlib.Path(page) for page in sys.argv[3:]])
    else:
        sys.exit(check(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()))
