#!/usr/bin/env python3
"""`cmake --install` takes all that it can after `scripts/build`: every file that it takes from the build folder is
built by the target that scripts/build builds. What it installs stands alone: no library of a compiler or of MPI, no run
path outside of the folder, and a Fortran program under MPI that pkg-config builds over it.

    install_test.py SOURCE_FOLDER BUILD_FOLDER
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
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

    def test_stands_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder, "prefix")
            subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, capture_output=True)
            files = [f for f in [*prefix.glob("lib*/**/*.so*"), *prefix.glob("bin/*")] if not f.is_symlink()]
            self.assertEqual([f.name for f in files if "tandem" not in f.name], [])
            for file in files:
                section = subprocess.run(["readelf", "--dynamic", file], check=True, capture_output=True, text=True).stdout
                for path in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", section):
                    self.assertIn(path, ["$ORIGIN", "$ORIGIN/../lib"], file.name)
            # Debian has Open MPI's mpifort also where there is no Fortran compiler.
            if missing := [tool for tool in ("gfortran", "mpifort", "mpicc", "pkg-config") if not shutil.which(tool)]:
                self.skipTest(f"{', '.join(missing)} not installed")
            self.runs_in_fortran(prefix, pathlib.Path(folder))

    def runs_in_fortran(self, prefix, folder):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(next(prefix.glob("lib*/**/pkgconfig")))}

        def run(*command):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
            return done.stdout.split()

        sources = pathlib.Path(*run("pkg-config", "--variable=fortrandir", "tandem_c"))
        flags = run("pkg-config", "--cflags", "--libs", "tandem_c")
        run("mpicc", *flags, "-c", sources / "tandem_mpi_fortran.c")
        run("mpifort", "-ffpe-trap=invalid,zero,overflow", sources / "arrays.f90", sources / "tandem.f90",
            SOURCE / "examples/17_simulation.f90", "tandem_mpi_fortran.o", "-o", "simulation", *flags)
        run(SOURCE / "tests/host/mpirun", "2", "./simulation")


if __name__ == "__main__":
    unittest.main()
