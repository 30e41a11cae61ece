"""scripts/gpu-check on a machine of its own making: programs that pass, fail, skip and hang, and nvidia-smi."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu-check"

# Googletest's command line, as far as gpu-check uses it.
TESTS = """#!/bin/sh
case "$1 $2" in
  --gtest_list_tests*) printf 'OnGpuSuite.\\n  Good\\n  Bad\\n  Absent\\n' ;;
  *OnGpuSuite.Bad*) echo 'expected 1, got 2'; exit 1 ;;
  *OnGpuSuite.Absent*) echo '[  SKIPPED ] OnGpuSuite.Absent' ;;
  *) echo '[       OK ] OnGpuSuite.Good' ;;
esac
"""
TANDEM = """#!/usr/bin/env python3
import json, sys
report = sys.argv[sys.argv.index("--report") + 1]
json.dump({"test_accuracy": ACCURACY, "samples_per_second": 1000}, open(report, "w"))
"""
STEP = """#!/bin/sh
echo '{"program": "tandem", "ms": MS}'
"""
TORCH = 'import sys\nif "--compile" in sys.argv: sys.exit("no compiler")\nprint(\'{"ms": 3.0}\')\n'
SMI = "#!/bin/sh\necho 'GPU 0: NVIDIA H200'\n"


class GpuCheck(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "bin").mkdir()
        shutil.copy(SCRIPT, self.folder)
        self.write("commit", "abc1234\n")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def check(self, *arguments):
        path = f"{self.folder / 'smi'}:{os.environ['PATH']}"
        return subprocess.run([sys.executable, self.folder / "gpu-check", "run", "--out", self.folder / "out", *arguments],
                              capture_output=True, text=True, env={**os.environ, "PATH": path}, timeout=120)

    def report(self):
        return json.loads((self.folder / "out/gpu-check.json").read_text())

    def test_no_gpu_is_said(self):
        self.write("smi/nvidia-smi", "#!/bin/sh\necho 'No devices were found'; exit 6\n")
        result = self.check()
        self.assertEqual(result.returncode, 2)
        self.assertIn("no GPU here: No devices were found", result.stderr)

    def test_unknown_parts_are_refused(self):
        result = self.check("--parts", "conformance,magic")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no part 'magic'", result.stderr)

    def test_tests_are_counted_and_failures_kept(self):
        self.write("smi/nvidia-smi", SMI)
        for name in ("device", "comm"):
            self.write(f"bin/{name}_test", TESTS)
        result = self.check("--parts", "conformance")
        self.assertEqual(result.returncode, 1)
        figures = self.report()["conformance"]
        self.assertEqual((figures["passed"], figures["failed"], figures["skipped"]), (2, 2, 2))
        self.assertIn("device_test: OnGpuSuite.Bad", figures["failures"])
        self.assertIn("expected 1, got 2", (self.folder / "out/failures.log").read_text())
        self.assertIn("conformance: 2 passed, 2 failed, 2 skipped, 0 not run", result.stdout)

    def test_a_program_that_does_not_start_fails(self):
        self.write("smi/nvidia-smi", SMI)
        self.write("bin/device_test", "#!/bin/sh\necho 'libcublasLt.so.13: not found'; exit 127\n")
        self.write("bin/comm_test", TESTS)
        result = self.check("--parts", "conformance")
        self.assertEqual(result.returncode, 1)
        self.assertIn("device_test: does not start", self.report()["conformance"]["failures"])

    def test_a_program_that_hangs_costs_its_limit(self):
        self.write("smi/nvidia-smi", SMI)
        self.write("bin/example_01_devices", "#!/bin/sh\necho 'under way'\nexec sleep 600\n")
        result = self.check("--parts", "programs", "--minutes", "0.35")  # 20 s are kept for the next part
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.report()["programs"], {"example_01_devices": "failed"})
        self.assertIn("under way\n\nended after", (self.folder / "out/failures.log").read_text())

    def test_training_has_to_reach_its_accuracy(self):
        self.write("smi/nvidia-smi", SMI)
        for accuracy, status in (("0.99", 0), ("0.985", 1)):
            self.write("bin/tandem", TANDEM.replace("ACCURACY", accuracy))
            self.assertEqual(self.check("--parts", "training").returncode, status)

    def test_benchmarks_are_medians_beside_their_peer(self):
        self.write("smi/nvidia-smi", SMI)
        self.write("bin/train_step", STEP.replace("MS", "1.5"))
        self.write("torch_step.py", TORCH)
        result = self.check("--parts", "machine,benchmarks", "--rounds", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        figures = self.report()["benchmarks"]["lenet64"]
        self.assertEqual((figures["eager"], figures["pytorch"], figures["compiled"]), (1.5, 3.0, None))
        row = next(line.split() for line in result.stdout.splitlines() if line.startswith("lenet64"))
        self.assertEqual(row, ["lenet64", "1.500", "1.500", "3.000", "-", "2.00", "2.00", "-"])
        self.assertEqual(self.report()["machine"]["gpus"], ["GPU 0: NVIDIA H200"])


if __name__ == "__main__":
    unittest.main()
