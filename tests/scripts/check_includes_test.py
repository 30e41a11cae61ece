"""scripts/check-includes on small trees: a good one passes, and each rule catches what breaks it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check-includes"

GOOD = {
    "include/tandem/errors.h": "#include <string>\n",
    "include/tandem/tensor.h": '#include "tandem/errors.h"\n',
    "include/tandem/tandem.h": '#include "tandem/errors.h"\n#include "tandem/tensor.h"\n',
    "src/core/status.h": '#include <fmt/format.h>\n#include "tandem/errors.h"\n',
    "src/device/device.h": '#include "core/status.h"\n',
    "src/device/cpu/cpu_device.h": '#include "device/device.h"\n',
    "src/device/device_manager.cc": '#include "device/cpu/cpu_device.h"\n',
    "src/ops/add.cc": '#include "device/device.h"\n#include "tandem/tensor.h"\n// #include "train/fit.h"\n',
    "tools/main.cc": '#include "tandem/tandem.h"\n',
    "examples/first.cpp": "#include <tandem/tandem.h>\n",
}


class CheckIncludes(unittest.TestCase):
    def check(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**GOOD, **changes}.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)

    def assert_offends(self, changes, expected):
        result = self.check(changes)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(expected, result.stdout)
        self.assertEqual(len(result.stdout.splitlines()), 1, result.stdout)

    def test_good_tree(self):
        result = self.check({})
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_higher_level(self):
        self.assert_offends({"src/core/env.cc": '#include "device/device.h"\n'},
                            'src/core/env.cc: level core includes "device/device.h" of the higher level device')

    def test_higher_level_through_its_public_header(self):
        self.assert_offends({"src/core/env.cc": '#include "tandem/tensor.h"\n'},
                            'level core includes "tandem/tensor.h" of the higher level tensor')

    def test_same_level(self):
        self.assert_offends({"src/hvd/a.cc": '#include "amp/b.h"\n', "src/amp/b.h": ""},
                            'level hvd includes "amp/b.h" of amp, which has the same height')

    def test_unknown_level(self):
        self.assert_offends({"src/attic/a.cc": ""}, "src/attic has no level")

    def test_missing_file(self):
        self.assert_offends({"src/ops/a.cc": '#include "b.h"\n', "src/ops/b.h": ""}, '"b.h" is not a file under src/')

    def test_public_header_with_internals(self):
        self.assert_offends({"include/tandem/tensor.h": '#include "core/status.h"\n'},
                            'tensor.h: public headers include only public headers, not "core/status.h"')

    def test_public_header_with_a_third_party(self):
        self.assert_offends({"include/tandem/tensor.h": "#include <fmt/format.h>\n"}, "not <fmt/format.h>")

    def test_public_header_of_a_higher_level(self):
        self.assert_offends({"include/tandem/tensor.h": "", "include/tandem/errors.h": '#include "tandem/tensor.h"\n'},
                            'public header of level core includes "tandem/tensor.h" of the higher level tensor')

    def test_public_header_without_a_level(self):
        self.assert_offends({"include/tandem/surprise.h": "",
                             "include/tandem/tandem.h": GOOD["include/tandem/tandem.h"] + '#include "tandem/surprise.h"\n'},
                            "surprise.h: a public header needs a level")

    def test_umbrella(self):
        self.assert_offends({"include/tandem/shape.h": ""}, "the umbrella header lacks tandem/shape.h")

    def test_cycle_of_files(self):
        self.assert_offends({"src/op/a.h": '#include "op/b.h"\n', "src/op/b.h": '#include "op/a.h"\n'},
                            "cycle of files: src/op/a.h -> src/op/b.h -> src/op/a.h")

    def test_cycle_of_directories(self):
        self.assert_offends({"src/ops/math/a.h": "", "src/ops/math/b.h": '#include "ops/nn/c.h"\n',
                             "src/ops/nn/c.h": "", "src/ops/nn/d.h": '#include "ops/math/a.h"\n'},
                            "cycle of directories: src/ops/math -> src/ops/nn -> src/ops/math")

    def test_cycle_of_units(self):
        self.assert_offends({"src/op/a.h": "", "src/op/a.cc": '#include "op/b.h"\n', "src/op/b.h": "",
                             "src/op/b.cu": '#include "op/a.h"\n', "src/op/c.cc": '#include "op/a.h"\n'},
                            "src/op: a cycle of units: a, b")

    def test_units_of_two_directories(self):
        result = self.check({"src/op/a.h": "", "src/op/a.cc": '#include "op/b/b.h"\n', "src/op/b/b.h": "",
                             "src/op/b/b.cc": '#include "op/a.h"\n'})
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_example_with_internals(self):
        self.assert_offends({"examples/first.cpp": '#include "core/status.h"\n'},
                            'an example includes only public headers, not "core/status.h"')


if __name__ == "__main__":
    unittest.main()
