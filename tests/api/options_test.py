#!/usr/bin/env python3
"""Users' code compiles without warnings under -Wall -Wextra: every struct of the public headers can be
initialized with one designated member, as in SGD({.momentum = 0.9}). So every other member needs an
initializer (`{}` or `= ...`).

    options_test.py SOURCE_FOLDER COMPILER...
"""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(sys.argv[1]).resolve()
COMPILERS = [c for c in sys.argv[2:] if shutil.which(c)]
del sys.argv[1:]

STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{|^\}  // namespace ([\w:]+)", re.MULTILINE)
MEMBER = re.compile(r"^  (?!using|friend|struct|enum|static|return)([\w:][^;(=]*?)[ >*](\w+)(?:\{[^;]*\}| = [^;]*)?;",
                    re.MULTILINE)
PLAIN = re.compile(r"bool|int|double|std::")  # types of which {} is a value
# Results, which users do not construct.
RESULTS = {"GradBucket", "FunctionCall", "Signature"}
# Templates: their instances are members of constructors' arguments.
TEMPLATES = {"ParamsWithOptions"}


def structs():
    for header in sorted((SOURCE / "include/tandem").glob("*.h")):
        text = re.sub(r"//[^\n]*", lambda m: m.group() if "namespace" in m.group() else "", header.read_text())
        for found in STRUCT.finditer(text):
            open_namespaces = []
            for space in NAMESPACE.finditer(text, 0, found.start()):
                if not space.group(1):
                    open_namespaces.pop()
                elif space.group(1).startswith("tandem"):
                    open_namespaces = [space.group(1)]
                else:
                    open_namespaces.append(space.group(1))
            name, body = found.groups()
            members = MEMBER.findall(body)
            members.sort(key=lambda member: not PLAIN.match(member[0]))
            if members and name not in RESULTS | TEMPLATES and f" {name}(" not in body:
                yield "::".join([*open_namespaces, name]), members[0][1]


class Options(unittest.TestCase):
    def test_of_each_struct_one_member_may_be_named(self):
        known = list(structs())
        self.assertGreater(len(known), 60)
        self.assertIn("tandem::ReduceOptions", dict(known))
        program = '#include "tandem/tandem.h"\n' + "".join(
            f"{name} make_{i}() {{ return {{.{member} = {{}}}}; }}\n" for i, (name, member) in enumerate(known))
        self.assertTrue(COMPILERS)
        for compiler in COMPILERS:
            result = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                                     f"-I{SOURCE}/include", "-x", "c++", "-"],
                                    input=program, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, f"{compiler}:\n{result.stderr[-6000:]}")


if __name__ == "__main__":
    unittest.main()
