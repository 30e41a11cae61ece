#!/usr/bin/env python3
"""find_package(tandem COMPONENTS ...): the components that were built when Tandem was installed, and errors for others.

    components_test.py PREFIX
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PREFIX = pathlib.Path(sys.argv.pop(1)).resolve()
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(tandem REQUIRED {components})
get_target_property(links tandem::tandem INTERFACE_LINK_LIBRARIES)
message(STATUS "links ${{links}}")
"""


class Components(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.prefix = self.folder / "prefix"
        shutil.copytree(PREFIX, self.prefix, symlinks=True)

    def configure(self, components=""):
        project = self.folder / "project"
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir()
        (project / "CMakeLists.txt").write_text(PROJECT.format(components=components))
        result = subprocess.run(["cmake", "-G", "Ninja", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}"],
                                capture_output=True, text=True)
        return result.returncode, " ".join((result.stdout + result.stderr).split())

    def test_all_are_there(self):
        for components, links in [("", "training;tandem::parallel;tandem::parameter_server;tandem::estimator;tandem::horovod;tandem::c"),
                                  ("COMPONENTS horovod", "horovod")]:
            code, text = self.configure(components)
            self.assertEqual(code, 0, text)
            self.assertIn(f"links tandem::{links} ", text)

    def test_after_the_demo(self):
        for library in self.prefix.glob("lib*/**/libtandem_*"):
            library.unlink()
        code, text = self.configure("COMPONENTS training")
        self.assertEqual(code, 0, text)
        code, text = self.configure("COMPONENTS training OPTIONAL_COMPONENTS parallel")
        self.assertEqual(code, 0, text)
        for components, missing in [("", "c"), ("COMPONENTS training horovod", "horovod")]:
            code, text = self.configure(components)
            self.assertNotEqual(code, 0)
            self.assertIn(f"The component {missing} was not built when Tandem was installed: run scripts/build", text)

    def test_fortran_needs_its_languages(self):
        code, text = self.configure("COMPONENTS fortran")
        self.assertNotEqual(code, 0)
        self.assertIn("The component fortran needs a project with the languages C and Fortran.", text)

    def test_names_what_there_is(self):
        code, text = self.configure("COMPONENTS trainings")
        self.assertNotEqual(code, 0)
        self.assertIn("Tandem has the components training, parallel, parameter_server, estimator, horovod, c, fortran, not trainings",
                      text)


if __name__ == "__main__":
    unittest.main()
