"""scripts/gpu-check on a machine of its own making: programs that pass, fail, skip and hang, and nvidia-smi."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

# Googletest's command line, as far as gpu-check uses it.
TESTS = """#!/bin/sh
case "$1 $2" in
  --gtest_list_tests*) printf 'OnGpuSuite.\\n  Good\\n  Bad\\n  Absent\\n' ;;
  *OnGpuSuite.Bad*) echo 'expected 1, got 2'; exit 1 ;;
  *OnGpuSuite.Absent*) echo '[  SKIPPED ] OnGpuSuite.Absent' ;;
  *) echo '[       OK ] OnGpuSuite.Good' ;;
esac
"""
ATTENTION_TESTS = """#!/bin/sh
case "$1" in
  --gtest_list_tests*) printf 'OnGpuAttention.\\n  IsFast\\n' ;;
  *) [ "$TANDEM_LOG_LEVEL" = debug ] && echo '12:00:00 debug cuDNN computes attention in bfloat16' ;;
esac
"""
TANDEM = """#!/usr/bin/env python3
import json, sys
if sys.argv[1] == "devices":
    print("a warning", json.dumps({"physical_devices": [{"type": "GPU", "emulated": EMULATED}]}))
else:
    report = sys.argv[sys.argv.index("--report") + 1]
    json.dump({"test_accuracy": ACCURACY, "samples_per_second": 1000}, open(report, "w"))
"""
# Says that it is ready, then measures when asked to. Ours has the bundle's libraries, the peer does not.
STEP = """#!/usr/bin/env python3
import json, os, sys
bundled = "OMP_WAIT_POLICY" in os.environ and "/lib" in os.environ.get("LD_LIBRARY_PATH", "")
if bundled != sys.argv[0].endswith("bin/train_step"): sys.exit("another environment")
if BROKEN: sys.exit("no compiler")
if os.environ.get("TANDEM_LOG_LEVEL") == "debug": print("debug cuDNN computes attention", file=sys.stderr)
def tell(ms): print(json.dumps({"ms": ms, "parameters": 10, "losses": LOSSES, "device_peak_mib": 100.0,
                                "flops": 6e9, "bytes": 3e9}), flush=True)
print("a line of something else", flush=True)
tell(None)
for line in sys.stdin: tell(MS)
"""
CEILINGS = """#!/usr/bin/env python3
print('{"flops": 1e13, "bytes": 4e12, "chain_bytes": 3e12}')
"""
# Takes 512 MiB when it allocates, and writes down what the driver sees: that, and a context of 500 MiB.
MEMORY = """#!/usr/bin/env python3
import json, pathlib, sys
used = pathlib.Path(__file__).parent.parent / "used"
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
reserved, limit = {"--growth": (0, 98200), "--fraction": (25000, 25000), "--limits": (1024, 1024)}.get(sys.argv[1],
                                                                                                  (98200, 98200))
for state in ("started", "allocated", "trimmed"):
    now = reserved + (512 if state == "allocated" and "--growth" in arguments else 0)
    used.write_text(str(now + 500 + LEAK * (state == "trimmed")))
    print(json.dumps({"state": state, "reserved": now << 20, "current": 0, "limit": limit << 20}), flush=True)
    sys.stdin.readline()
used.write_text("0")
"""
SMI = """#!/bin/sh
case "$1" in
  *name,driver*) echo 'NVIDIA H200, 580.1' ;;
  *memory.used*) cat FOLDER/used ;;
  *memory.free*) echo $((100000 - $(cat FOLDER/used))) ;;
  *memory.total*) echo 100000 ;;
  *) echo 'GPU 0: NVIDIA H200' ;;
esac
"""
SANITIZER = """#!/bin/sh
case "$*" in
  --help) echo '  --require-cuda-init arg  --kernel-name arg' ;;
  *report-api-errors*) echo 'unrecognised option'; exit 1 ;;
  *memcheck*lenet64*) echo 'Invalid __global__ write'; exit 9 ;;
esac
exit 0
"""


def step(ms, losses=(2.0, 1.0), broken=False):
    return STEP.replace("MS", str(ms)).replace("LOSSES", str(list(losses))).replace("BROKEN", str(broken))


class GpuCheck(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        (self.folder / "bin").mkdir()
        shutil.copy(SCRIPTS / "gpu-check", self.folder)
        shutil.copytree(SCRIPTS / "gpu_check", self.folder / "gpu_check")
        self.write("commit", "abc1234\n")
        self.write("used", "0")
        self.write("smi/nvidia-smi", SMI.replace("FOLDER", str(self.folder)))
        self.write_tandem()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def write_tandem(self, accuracy="0.99", emulated=False):
        self.write("bin/tandem", TANDEM.replace("ACCURACY", accuracy).replace("EMULATED", str(emulated)))

    def command(self, *arguments):
        path = f"{self.folder / 'smi'}:{os.environ['PATH']}"
        return subprocess.run([sys.executable, self.folder / "gpu-check", *arguments], capture_output=True, text=True,
                              env={**os.environ, "PATH": path}, timeout=200)

    def check(self, *arguments):
        return self.command("run", "--out", self.folder / "out", *arguments)

    def report(self, stage="all"):
        return json.loads((self.folder / f"out/gpu-check-{stage}.json").read_text())

    def test_a_missing_gpu_is_reported(self):
        self.write("smi/nvidia-smi", "#!/bin/sh\necho 'No devices were found'; exit 6\n")
        result = self.check()
        self.assertEqual(result.returncode, 2)
        self.assertIn("no GPU here: No devices were found", result.stderr)

    def test_a_gpu_that_tandem_does_not_find_is_reported(self):
        self.write_tandem(emulated=True)
        result = self.check()
        self.assertEqual(result.returncode, 2)
        self.assertIn("Tandem finds none:\na warning", result.stderr)

    def test_unknown_parts_are_refused(self):
        result = self.check("--parts", "conformance,magic")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no part 'magic'", result.stderr)

    def test_tests_are_counted_and_failures_kept(self):
        for name in ("device", "comm"):
            self.write(f"bin/{name}_test", TESTS)
        result = self.check("--parts", "conformance")
        self.assertEqual(result.returncode, 1)
        results = self.report()["conformance"]
        self.assertEqual((results["passed"], results["failed"], results["skipped"]), (2, 2, 2))
        self.assertIn("device_test: OnGpuSuite.Bad", results["failures"])
        self.assertIn("expected 1, got 2", (self.folder / "out/failures.log").read_text())
        self.assertIn("conformance: 2 passed, 2 failed, 2 skipped, 0 not run", result.stdout)

    def test_the_attention_backend_is_noted(self):
        for name in ("device", "comm"):
            self.write(f"bin/{name}_test", ATTENTION_TESTS)
        result = self.check("--parts", "conformance")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(self.report()["conformance"]["notes"], ["cuDNN computes attention in bfloat16"])
        self.assertIn("\n  cuDNN computes attention in bfloat16\n", result.stdout)

    def test_a_program_that_does_not_start_fails(self):
        self.write("bin/device_test", "#!/bin/sh\necho 'libcublasLt.so.13: not found'; exit 127\n")
        self.write("bin/comm_test", TESTS)
        result = self.check("--parts", "conformance")
        self.assertEqual(result.returncode, 1)
        self.assertIn("device_test: does not start", self.report()["conformance"]["failures"])
        self.assertIn("libcublasLt.so.13: not found", (self.folder / "out/failures.log").read_text())

    def test_tests_that_are_all_skipped_fail(self):
        for name in ("device", "comm"):
            self.write(f"bin/{name}_test", TESTS.replace("Good\\n  Bad\\n  ", ""))
        result = self.check("--parts", "conformance")
        self.assertEqual((result.returncode, self.report()["conformance"]["skipped"]), (1, 2))
        self.assertEqual(self.report()["conformance"]["failures"], ["no test passed"])

    def test_no_test_takes_all_of_the_memory(self):
        for name in ("device", "comm"):
            self.write(f"bin/{name}_test", TESTS.replace("Bad) echo", "Bad) [ $TANDEM_FORCE_GPU_ALLOW_GROWTH = true ] || echo")
                       .replace("; exit 1", ""))
        self.assertEqual(self.check("--parts", "conformance").returncode, 0)

    def test_output_that_is_not_text_is_kept(self):
        self.write("bin/example_01_devices", "#!/bin/sh\nprintf 'a byte: \\377'; exit 1\n")
        self.assertEqual(self.check("--parts", "programs").returncode, 1)
        self.assertIn("a byte: \N{REPLACEMENT CHARACTER}", (self.folder / "out/failures.log").read_text())

    def test_a_program_that_does_not_run_on_the_gpu_fails(self):
        for device, outcome in (("CPU", "failed"), ("GPU", "passed")):
            self.write("bin/example_01_devices", f"#!/bin/sh\necho /job:localhost/replica:0/task:0/device:{device}:0\n")
            self.check("--parts", "programs")
            self.assertEqual(self.report()["programs"], {"example_01_devices": outcome})

    def test_a_program_that_hangs_is_ended_at_its_limit(self):
        # Its child holds the output open.
        self.write("bin/example_01_devices", "#!/bin/sh\necho 'under way'\nsleep 600\n")
        result = self.check("--parts", "programs,machine", "--minutes", "0.2")  # 10 s are kept for the next part
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.report()["programs"], {"example_01_devices": "failed"})
        self.assertEqual(self.report()["left out"], ["machine"])
        self.assertIn("under way\n\nended after", (self.folder / "out/failures.log").read_text())

    def test_a_part_that_breaks_does_not_stop_the_others(self):
        self.write("bin/example_01_devices", "no program at all")
        result = self.check("--parts", "programs,machine")
        self.assertEqual(result.returncode, 1)
        self.assertIn("failed: OSError", self.report()["programs"]["outcome"])
        self.assertEqual(self.report()["machine"]["gpus"], ["NVIDIA H200, 580.1"])

    def test_training_has_to_reach_its_accuracy(self):
        for accuracy, status in (("0.99", 0), ("0.985", 1)):
            self.write_tandem(accuracy)
            self.assertEqual(self.check("--parts", "training").returncode, status)

    def test_memory_is_compared_with_the_driver(self):
        self.write("bin/memory_options", MEMORY.replace("LEAK", "0"))
        result = self.check("--parts", "memory")
        self.assertEqual((result.returncode, self.report()["memory"]["outcome"]), (0, "passed"), result.stdout)
        self.assertEqual(self.report()["memory"]["contexts"], [500, 500])
        self.write("bin/memory_options", MEMORY.replace("LEAK", "300"))
        self.assertEqual(self.check("--parts", "memory").returncode, 1)
        self.assertEqual(self.report()["memory"]["outcome"], "the driver's count differs")

    def test_findings_of_the_sanitizer_fail(self):
        self.write("smi/compute-sanitizer", SANITIZER)
        self.write("bin/ceilings", CEILINGS)
        for name in ("device", "comm", "ops"):
            self.write(f"bin/{name}_test", TESTS.replace("exit 1", "exit 0"))
        result = self.check("--stage", "safety")
        self.assertEqual(result.returncode, 1)
        results = self.report("safety")["sanitizer"]
        self.assertEqual({name for name, outcome in results["trainings"].items() if outcome == "failed"},
                         {"memcheck lenet64 float32", "memcheck lenet64 bfloat16"})
        self.assertIn("Invalid __global__ write", (self.folder / "out/failures.log").read_text())
        self.assertEqual((results["memcheck"]["failed"], results["racecheck"]["failed"]), (0, 0))
        self.assertEqual(results["options"][-2:], ["--require-cuda-init=no", "--kernel-name=kns=tandem"])

    def test_a_sanitizer_that_does_not_work_fails(self):
        self.write("smi/compute-sanitizer", "#!/bin/sh\necho 'Device not supported'; exit 1\n")
        result = self.check("--parts", "sanitizer")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.report()["sanitizer"]["outcome"], "compute-sanitizer does not work here")
        self.assertIn("Device not supported", (self.folder / "out/failures.log").read_text())

    def test_benchmarks_are_medians_with_ratios_to_the_peer(self):
        self.write("bin/train_step", step(1.5))
        self.write("bin/ceilings", CEILINGS)
        self.write("torch_ceilings.py", CEILINGS)
        self.write("torch_step.py", step(3.0, broken='"--compile" in sys.argv'))
        result = self.check("--stage", "speed", "--rounds", "2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        row = self.report("speed")["benchmarks"]["rows"]["lenet64"]["bfloat16"]
        self.assertEqual((row["eager"]["ms"], row["pytorch"]["rounds"], "compiled" in row), (1.5, [3.0, 3.0], False))
        self.assertIn("no compiler", (self.folder / "out/failures.log").read_text())
        line = next(line.split() for line in result.stdout.splitlines() if line.startswith("lenet64"))
        # 6e9 operations in 1.5 ms of 1e13 a second; 3e9 bytes of 4e12.
        self.assertEqual(line, ["lenet64", "float32", "1.500", "1.500", "-", "3.000", "-", "2.00", "2.00", "-", "-", "40%",
                                "50%", "1.00"])
        large = self.report("speed")["benchmarks"]["rows"]["resnet50"]["float32"]
        self.assertEqual(sorted(large), ["pytorch", "traced", "tuned"])
        self.assertIn("lenet64 float32: cuDNN computes attention\n", result.stdout)

    def test_a_peer_that_does_not_run_fails(self):
        self.write("bin/train_step", step(1.5))
        self.write("torch_step.py", step(3.0, broken=True))
        result = self.check("--parts", "benchmarks", "--rounds", "1", "--cases", "mlp64")
        self.assertEqual(result.returncode, 1)
        self.assertIn("mlp64 float32 pytorch: no result", result.stdout)

    def test_losses_without_a_reference_fail(self):
        self.write("bin/train_step", step(1.5, broken='"--traced 1" in " ".join(sys.argv)'))
        self.write("torch_step.py", step(3.0, broken=True))
        result = self.check("--parts", "benchmarks", "--rounds", "1", "--cases", "mlp64,mlp512")
        self.assertEqual(result.returncode, 1)
        self.assertIn("mlp512 float32: no losses to compare with", result.stdout)

    def test_programs_that_do_not_train_the_same_fail(self):
        self.write("bin/train_step", step(1.5, losses=(2.0, 1.2)))
        self.write("torch_step.py", step(3.0))
        result = self.check("--parts", "benchmarks", "--rounds", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("mlp64 float32 eager: a loss of 1.2 where PyTorch has 1", result.stdout)

    def test_stages_are_reported_together(self):
        self.write("bin/example_03_memory", "#!/bin/sh\nexit 0\n")
        self.check("--stage", "works")
        self.check("--stage", "safety")
        files = [self.folder / f"out/gpu-check-{stage}.json" for stage in ("works", "safety")]
        result = self.command("report", *files, "--keep", self.folder / "kept.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("example_03_memory: passed", result.stdout)
        self.assertIn("LeNet on MNIST: 0.99", result.stdout)
        self.assertIn("sanitizer: no compute-sanitizer here", result.stdout)
        kept = json.loads((self.folder / "kept.json").read_text())
        self.assertEqual(len(kept["commands"]), 2)
        self.assertIn("ended", kept)


if __name__ == "__main__":
    unittest.main()
