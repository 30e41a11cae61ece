"""The parts that are not compared with a peer: tests, programs, a training, memory, ceilings, the sanitizer."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import sys
import tempfile

from gpu_check.bundle import CONFORMANCE, ON_GPU
from gpu_check.check import HERE, Served, cuda_folders, last_json, notes_in


def tests_of(check, program, pattern):
    """Returns (names, None), or (None, output) if the program failed."""
    good, text = check.run([HERE / "bin" / program, "--gtest_list_tests", f"--gtest_filter={pattern}"], 60)
    if not good:
        return None, text
    names, suite = [], ""
    for line in text.splitlines():
        if line and not line.startswith(" ") and line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
        elif line.startswith("  ") and suite:
            names.append(suite + line.split("#")[0].strip())
    return names, None


def environment_of(test):
    """Many tests share the GPU, so none may reserve all of its memory. The tolerances are for float32, so TF32 is off.
    The debug log of the attention tests says which library computes attention."""
    level = "debug" if "Attention" in test else "info"
    return ["env", "TANDEM_FORCE_GPU_ALLOW_GROWTH=true", "TANDEM_ALLOW_TF32=false", f"TANDEM_LOG_LEVEL={level}"]


def run_tests(check, selection, seconds, save, prefix=()):
    """Runs each test in its own process, as ctest does; `selection` is {program: pattern}. The programs take turns, so
    that a short time limit still covers all of them. Tests beyond the limit count as not run."""
    lists, found = [], {"passed": 0, "failed": 0, "skipped": 0, "not run": 0, "failures": [], "notes": []}
    for program, pattern in selection.items():
        names, said = tests_of(check, program, pattern)
        if names is None:
            found["failures"].append(f"{program}: does not start")
            check.keep_log(program, said)
            found["failed"] += 1
        lists.append([((i + 1) / (len(names) + 1), program, name) for i, name in enumerate(names)] if names else [])
    work = [(program, name) for _, program, name in sorted(item for names in lists for item in names)]

    def one(item):
        program, name = item
        if check.left() < 5:
            return item, "not run", ""
        good, text = check.run([*environment_of(name), *prefix, HERE / "bin" / program, f"--gtest_filter={name}"], seconds)
        if not good and check.left() <= 0:
            return item, "not run", text
        skipped = good and "[  SKIPPED ]" in text
        return item, "skipped" if skipped else "passed" if good else "failed", text

    with concurrent.futures.ThreadPoolExecutor(check.options.jobs) as pool:
        for done, ((program, name), outcome, text) in enumerate(pool.map(one, work), 1):
            found[outcome] += 1
            found["notes"] = sorted({*found["notes"], *notes_in(text)})
            if outcome == "failed":
                found["failures"].append(f"{program}: {name}")
                check.keep_log(f"{program} {name}", text)
            if done % 50 == 0:
                save(found)
    if found["passed"] == 0:
        found["failures"].append("no test passed")
    check.failed |= bool(found["failures"])
    return found


TORCH = """
import json, torch
torch.zeros(1, device="cuda").item()
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                  "nccl": torch.cuda.nccl.version(), "compute": torch.cuda.get_device_capability()}))
"""


def machine(check):
    """Describes the machine. Also loads PyTorch into the file cache before anything is timed."""
    fields = "name,driver_version,memory.total,compute_cap,pci.bus_id"
    _, gpus = check.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"], 60) if shutil.which("nvidia-smi") else (
        False, "no nvidia-smi")
    good, text = check.run([sys.executable, "-c", TORCH], 60)
    return {"gpus": gpus.strip().splitlines(), "cores": os.cpu_count(), "cuda": cuda_folders(),
            "pytorch": last_json(text) if good else text.strip()[-300:]}


def conformance(check):
    return run_tests(check, {f"{name}_test": "OnGpu*" for name in CONFORMANCE}, 40,
                     lambda found: check.save("conformance", found))


def operations(check):
    return run_tests(check, {f"{name}_test": pattern for name, pattern in ON_GPU.items()}, 40,
                     lambda found: check.save("operations", found))


# The output of a program that runs on a GPU contains this.
ON_THE_GPU = {"example_01_devices": "device:GPU:0", "example_02_session_towers": "(MatMul): /job:localhost/replica:0/"
              "task:0/device:GPU:0"}


def programs(check):
    """Runs the examples and keeps their output. Examples that name CPUs also have a version for GPUs."""
    outcome, arguments = {}, dict.fromkeys(["example_04_fit_mirrored", "example_04_fit_mirrored_on_gpus"],
                                           [HERE / "data/mnist"])
    with tempfile.TemporaryDirectory() as folder:  # some write where they run
        for path in sorted((HERE / "bin").glob("example_*")):
            good, text = check.run([path, *arguments.get(path.name, [])], 60, cwd=folder)
            expected = ON_THE_GPU.get(path.name, "")
            outcome[path.name] = "passed" if good and expected in text else "failed"
            check.save("programs", outcome)
            with (check.out / "programs.log").open("a") as log:
                log.write(f"==== {path.name}\n{text[-4000:]}\n")
            if outcome[path.name] == "failed":
                check.failed = True
                check.keep_log(path.name, text if not good else f"{text}\nexpected {expected!r} in it")
    return outcome


def training(check):
    """LeNet on MNIST."""
    report = check.out / "training.json"
    data, wanted = ["--data", f"mnist:{HERE / 'data/mnist'}", "--epochs", "3"], 0.985
    if check.options.tiny:
        data, wanted = ["--data", "synthetic", "--epochs", "1", "--limit", "512"], 0.1
    good, text = check.run([HERE / "bin/tandem", "train", "--model", "lenet", *data, "--strategy", "one_device",
                            "--devices", "/gpu:0", "--seed", "1", "--report", report], 240)
    results = json.loads(report.read_text()) if good else {}
    reached = results.get("test_accuracy", 0) > wanted
    if not reached:
        check.failed = True
        check.keep_log("training", text)
    return {"accuracy": results.get("test_accuracy"), "wanted": wanted,
            "samples_per_second": results.get("samples_per_second"), "outcome": "passed" if reached else "failed"}


# ---- memory ---------------------------------------------------------------------------------------------------

MIB = 2**20
CONTEXTS_DIFFER = 64  # MiB: how much the driver's overhead may vary


def driver_mib(check, field):
    """A memory field of the first GPU, or None without a driver."""
    if check.options.tiny:
        return None
    good, text = check.run(["nvidia-smi", f"--query-gpu=memory.{field}", "--format=csv,noheader,nounits"], 30)
    return float(text.split()[0]) if good else None


def memory_of(check, name, arguments, before):
    """The memory that Tandem reports as reserved and the driver as used, in each state."""
    command = ["env", "-u", "TANDEM_FORCE_GPU_ALLOW_GROWTH", HERE / "bin/memory_options", *arguments]
    program = Served(check, f"memory_options {name}", command)
    states = {}
    try:
        said = program.line(60)
        while said is not None:
            used = driver_mib(check, "used")
            states[said["state"]] = {**{key: said[key] / MIB for key in ("reserved", "current", "limit")},
                                     "driver": None if used is None else used - before, "free": driver_mib(check, "free")}
            said = program.ask(60)
    finally:
        program.end(failed=len(states) < 3)
    return states


def memory(check):
    """Compares the memory options with the driver's numbers. The difference between the driver's and Tandem's count is
    the CUDA context, which is the same under all options."""
    before, total = driver_mib(check, "used") or 0, driver_mib(check, "total")
    allocate = 64 if check.options.tiny else 512
    variants = {"growth": ["--growth", "1"], "fraction": ["--fraction", "0.25"], "limits": ["--limits", "768,256"],
                "everything": []}
    found = {"before": before, "total": total, "states": {}, "wrong": []}
    for name, arguments in variants.items():
        found["states"][name] = memory_of(check, name, [*arguments, "--allocate", allocate], before)
        check.save("memory", found)

    def expect(truth, what):
        if not truth:
            found["wrong"].append(what)

    states = found["states"]
    for name in variants:
        expect(len(states[name]) == 3, f"{name}: ended early")
    if not found["wrong"]:
        expect(states["growth"]["started"]["reserved"] < 64, "growth: more reserved at the start than needed")
        expect(states["growth"]["allocated"]["reserved"] >= allocate, "growth: less reserved than allocated")
        expect(states["growth"]["trimmed"]["reserved"] < states["growth"]["allocated"]["reserved"],
               "growth: nothing was released")
        expect(states["limits"]["started"]["limit"] == 1024, "limits: their sum is not the limit")
        if total is not None:
            expect(abs(states["fraction"]["started"]["limit"] / total - 0.25) < 0.01, "fraction: not a quarter")
            expect(0 <= states["everything"]["allocated"]["free"] < 2500, "everything: not nearly all is taken")
            contexts = [state["driver"] - state["reserved"] for each in states.values() for state in each.values()]
            found["contexts"] = [min(contexts), max(contexts)]
            expect(0 < min(contexts) and max(contexts) - min(contexts) <= CONTEXTS_DIFFER,
                   "the driver's count differs")
    check.failed |= bool(found["wrong"])
    return {**found, "outcome": "; ".join(found["wrong"]) or "passed"}


# ---- ceilings -------------------------------------------------------------------------------------------------


def ceilings(check):
    """Matrix products, passes over memory and a chain of four element-wise operations, in Tandem and PyTorch in turn:
    operations and bytes per second. The bytes of a chain are counted as one pass."""
    size = ["--size", "64", "--elements", str(2**20)] if check.options.tiny else []
    device = "cpu" if check.options.tiny else "gpu"
    contenders = {"tandem": [HERE / "bin/ceilings"], "pytorch": [sys.executable, HERE / "torch_ceilings.py"]}
    found = {}
    for dtype in ("bfloat16", "float32", "tf32"):
        for name, command in contenders.items():
            good, text = check.run([*command, "--device", device, "--dtype", dtype, "--seconds",
                                    check.options.seconds / 2, *size], 60)
            results = last_json(text) if good else None
            if results is None:
                check.failed |= name == "tandem"
                check.keep_log(f"ceilings {name} {dtype}", text)
                continue
            found.setdefault(dtype, {})[name] = {key: results[key] for key in ("flops", "bytes", "chain_bytes")}
            check.save("ceilings", found)
    return found


# ---- compute-sanitizer ----------------------------------------------------------------------------------------

# Small training runs cover most kernels; (case, traced).
TRAININGS = [("transformer12", 1), ("resnet50", 0), ("lenet64", 1), ("mlp64", 0)]
# Skipped tests that never touch CUDA are no error. Neither are failed API calls with a fallback: Tandem checks every
# return code. Kernels of libraries are excluded, because they are slow under the tool. Options that the installed tool
# lacks are left out.
OPTIONS = ["--require-cuda-init=no", "--report-api-errors=no", "--kernel-name=kns=tandem", "--max-connections=1000"]
SHARE_WITHIN_BLOCKS = "*Reduce*:*Softmax*:*Norm*:*Attention*:*Pool*:*Cumsum*"


def prefixes(check, tool):
    """{kind: prefix of the command}, or None if the tool does not work on this machine."""
    _, usage = check.run([tool, "--help"], 60)
    options = [option for option in OPTIONS if option.split("=")[0] in usage]
    prefix = {kind: [tool, "--tool", kind, "--error-exitcode=9", *options] for kind in ("memcheck", "racecheck")}
    size = ["--device", "gpu", "--dtype", "float32", "--seconds", "0", "--size", 64, "--elements", 2**20]
    good, text = check.run([*prefix["memcheck"], HERE / "bin/ceilings", *size], 100)
    if not good:
        check.keep_log("compute-sanitizer over ceilings", text)
    return prefix if good else None


def sanitizer(check):
    """memcheck over tests, then racecheck over kernels with shared memory, then both over training runs. memcheck knows
    the ends of memory regions, but not those of the tensors within them. The address sanitizer checks those on the fake
    of CUDA."""
    tool = shutil.which("compute-sanitizer")
    prefix = tool and prefixes(check, tool)
    if not prefix:
        check.failed = True
        return {"outcome": "compute-sanitizer does not work here" if tool else "no compute-sanitizer here"}
    found = {"options": prefix["memcheck"][1:]}

    def over_tests(kind, selection, share):
        end, check.part_end = check.part_end, check.part_end - check.left() * (1 - share)
        found[kind] = run_tests(check, selection, 150, lambda counts: check.save("sanitizer", {**found, kind: counts}),
                                prefix[kind])
        check.part_end = end
        check.save("sanitizer", found)

    conformance_tests = {f"{name}_test": "OnGpu*" for name in CONFORMANCE}
    over_tests("memcheck", {**conformance_tests, "ops_test": "*Conformance*:*Gradient*"}, 0.5)
    over_tests("racecheck", {"ops_test": SHARE_WITHIN_BLOCKS}, 0.4)
    found["trainings"] = {}
    over_trainings(check, prefix, found["trainings"], lambda: check.save("sanitizer", found))
    return found


def over_trainings(check, prefix, outcomes, save):
    def train(item):
        kind, case, traced, dtype = item
        if check.left() < 5:
            return item, "not run", ""
        good, text = check.run([*prefix[kind], HERE / "bin/train_step", "--device", "gpu", "--case", case, "--tiny", 1,
                                "--traced", traced, "--dtype", dtype, "--check", 2, "--seconds", "0"], 150)
        return item, "passed" if good else "failed" if check.left() > 0 else "not run", text

    # cuBLAS's bfloat16 products on an H100 fail under racecheck, even if it watches no kernel at all.
    dtypes = {"memcheck": ("float32", "bfloat16"), "racecheck": ("float32",)}
    work = [(kind, case, traced, dtype) for kind in prefix for case, traced in TRAININGS for dtype in dtypes[kind]]
    with concurrent.futures.ThreadPoolExecutor(check.options.jobs) as pool:
        for (kind, case, traced, dtype), outcome, text in pool.map(train, work):
            name = f"{kind} {case} {dtype}"
            outcomes[name] = outcome
            save()
            if outcome == "failed":
                check.failed = True
                check.keep_log(name, text)
