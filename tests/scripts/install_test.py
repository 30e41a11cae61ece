#!/usr/bin/env python3
"""`cmake --install` takes all that it can after `scripts/build`: every file that it takes from the build folder is
built by the target that scripts/build builds.

    install_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import pathlib
import re
import subprocess
import sys
import unittest

SOURCE, BUILD = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))


def installed_files():
    """The files that the install scripts take from the build folder, except those that CMake writes itself."""
    found = set()
    for script in BUILD.rglob("cmake_install.cmake"):
        for call in re.findall(r"file\(INSTALL [^)]*\)", script.read_text()):
            found.update(re.findall(rf'"({re.escape(str(BUILD))}/[^"]*)"', call))
    return {pathlib.Path(f) for f in found if not f.endswith((".cmake", ".pc"))}


def targets():
    command = re.search(r"^build_preset release .*-- ([^#\n]*)", (SOURCE / "scripts/build").read_text(), re.MULTILINE)
    return command.group(1).split()


class Install(unittest.TestCase):
    def test_takes_what_is_built(self):
        if not (BUILD / "build.ninja").exists():
            self.skipTest("not built by ninja")
        files = installed_files()
        commands = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", *targets()], check=True,
                                  capture_output=True, text=True).stdout
        built = {(BUILD / word).resolve() for word in commands.split() if "=" not in word}
        self.assertIn(BUILD / "tools/tandem", files)
        self.assertEqual(sorted(str(f) for f in files if f.resolve() not in built), [])


if __name__ == "__main__":
    unittest.main()
