"""What is checked but not compared with a peer: tests, programs, a training, memory, ceilings, the sanitizer."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import sys
import tempfile

from gpu_check.bundle import CONFORMANCE, ON_GPU
from gpu_check.check import HERE, Served, cuda_folders, last_json, told_of_cudnn


def tests_of(check, program, pattern):
    good, text = check.run([HERE / "bin" / program, "--gtest_list_tests", f"--gtest_filter={pattern}"], 60)
    if not good:
        return None
    names, suite = [], ""
    for line in text.splitlines():
        if line and not line.startswith(" ") and line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
        elif line.startswith("  ") and suite:
            names.append(suite + line.split("#")[0].strip())
    return names


def run_tests(check, programs, pattern, seconds, prefix=()):
    """Each in a process of its own, as ctest runs them. The programs take turns, so that what the time allows is of
    all of them."""
    lists, failures, cudnn = [], [], set()
    counts = {"passed": 0, "failed": 0, "skipped": 0, "not run": 0}
    for program in programs:
        names = tests_of(check, program, pattern)
        if names is None:
            failures.append(f"{program}: does not start")
            check.keep_log(program, "--gtest_list_tests failed")
            counts["failed"] += 1
        lists.append([((i + 1) / (len(names) + 1), program, name) for i, name in enumerate(names)] if names else [])
    work = [(program, name) for _, program, name in sorted(item for names in lists for item in names)]

    def one(item):
        program, name = item
        if check.left() < 5:
            return item, "not run", ""
        # The tests' tolerances are those of float32; convolutions would be of TF32.
        level = "debug" if "Attention" in name else "info"  # which says who computes it
        good, text = check.run(["env", "TANDEM_ALLOW_TF32=false", f"TANDEM_LOG_LEVEL={level}", *prefix,
                                HERE / "bin" / program, f"--gtest_filter={name}"], seconds)
        skipped = good and "[  SKIPPED ]" in text
        return item, "skipped" if skipped else "passed" if good else "failed", text

    with concurrent.futures.ThreadPoolExecutor(check.options.jobs) as pool:
        for (program, name), outcome, text in pool.map(one, work):
            counts[outcome] += 1
            cudnn.update(told_of_cudnn(text))
            if outcome == "failed":
                failures.append(f"{program}: {name}")
                check.keep_log(f"{program} {name}", text)
    check.failed |= counts["failed"] > 0
    return {**counts, "failures": failures, "cudnn": sorted(cudnn)}


def machine(check):
    fields = "name,driver_version,memory.total,compute_cap,pci.bus_id"
    _, gpus = check.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"], 60) if shutil.which("nvidia-smi") else (
        False, "no nvidia-smi")
    return {"gpus": gpus.strip().splitlines(), "cores": os.cpu_count(), "cuda": cuda_folders()}


def conformance(check):
    return run_tests(check, [f"{name}_test" for name in CONFORMANCE], "OnGpu*", 120)


def operations(check):
    return run_tests(check, [f"{name}_test" for name in ON_GPU], "-*Slow.*:*Hosts*", 120)


def programs(check):
    outcome, arguments = {}, {"example_04_fit_mirrored": [HERE / "data/mnist"]}
    with tempfile.TemporaryDirectory() as folder:  # some write where they run
        for path in sorted((HERE / "bin").glob("example_*")):
            good, text = check.run([path, *arguments.get(path.name, [])], 60, cwd=folder)
            outcome[path.name] = "passed" if good else "failed"
            check.save("programs", outcome)
            if not good:
                check.failed = True
                check.keep_log(path.name, text)
    return outcome


def training(check):
    """LeNet on MNIST."""
    report = check.out / "training.json"
    data, wanted = ["--data", f"mnist:{HERE / 'data/mnist'}", "--epochs", "3"], 0.985
    if check.options.tiny:
        data, wanted = ["--data", "synthetic", "--epochs", "1", "--limit", "512"], 0.1
    good, text = check.run([HERE / "bin/tandem", "train", "--model", "lenet", *data, "--strategy", "one_device",
                            "--devices", "/gpu:0", "--seed", "1", "--report", report], 240)
    figures = json.loads(report.read_text()) if good else {}
    reached = figures.get("test_accuracy", 0) > wanted
    if not reached:
        check.failed = True
        check.keep_log("training", text)
    return {"accuracy": figures.get("test_accuracy"), "wanted": wanted,
            "samples_per_second": figures.get("samples_per_second"), "outcome": "passed" if reached else "failed"}


# ---- memory ---------------------------------------------------------------------------------------------------

MIB = 2**20
CONTEXTS_DIFFER = 64  # MiB: what the driver may count besides, now more, now less


def driver_mib(check, field):
    """Of the first GPU; None where no driver tells."""
    if check.options.tiny:
        return None
    good, text = check.run(["nvidia-smi", f"--query-gpu=memory.{field}", "--format=csv,noheader,nounits"], 30)
    return float(text.split()[0]) if good else None


def memory_of(check, name, arguments, before):
    """What Tandem says that it has reserved, and what the driver says that is used, in each state."""
    program = Served(check, f"memory_options {name}", [HERE / "bin/memory_options", *arguments])
    states, said = {}, program.line(60)
    while said is not None:
        used = driver_mib(check, "used")
        states[said["state"]] = {**{key: said[key] / MIB for key in ("reserved", "current", "limit")},
                                 "driver": None if used is None else used - before}
        said = program.ask(60)
    program.end(failed=len(states) < 3)
    return states


def memory(check):
    """The options of memory, against the driver's figures: between what it counts and what Tandem has reserved there
    is the context, the same under all options."""
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
        expect(states["growth"]["started"]["reserved"] < 64, "growth: more than was needed at the start")
        expect(states["growth"]["allocated"]["reserved"] >= allocate, "growth: less reserved than allocated")
        expect(states["growth"]["trimmed"]["reserved"] < states["growth"]["allocated"]["reserved"],
               "growth: nothing given back")
        expect(states["limits"]["started"]["limit"] == 1024, "limits: their sum is not the limit")
        if total is not None:
            expect(abs(states["fraction"]["started"]["limit"] / total - 0.25) < 0.01, "fraction: not a quarter")
            everything = states["everything"]["allocated"]
            expect(0 < total - before - everything["driver"] < 2500, "everything: not nearly all is taken")
            contexts = [state["driver"] - state["reserved"] for each in states.values() for state in each.values()]
            found["contexts"] = [min(contexts), max(contexts)]
            expect(0 < min(contexts) and max(contexts) - min(contexts) <= CONTEXTS_DIFFER,
                   "the driver counts otherwise")
    check.failed |= bool(found["wrong"])
    return {**found, "outcome": "; ".join(found["wrong"]) or "passed"}


# ---- ceilings -------------------------------------------------------------------------------------------------


def ceilings(check):
    """Products, passes over memory and a chain of four element-wise operations, of Tandem and of PyTorch in turn:
    operations and bytes a second, a chain's as if it were one pass."""
    size = ["--size", "64", "--elements", str(2**20)] if check.options.tiny else []
    device = "cpu" if check.options.tiny else "gpu"
    contenders = {"tandem": [HERE / "bin/ceilings"], "pytorch": [sys.executable, HERE / "torch_ceilings.py"]}
    found = {}
    for dtype in ("float32", "tf32", "bfloat16"):
        for name, command in contenders.items():
            good, text = check.run([*command, "--device", device, "--dtype", dtype, "--seconds",
                                    check.options.seconds / 2, *size], 60)
            figures = last_json(text) if good else None
            if figures is None:
                check.failed |= name == "tandem"
                check.keep_log(f"ceilings {name} {dtype}", text)
                continue
            found.setdefault(dtype, {})[name] = {key: figures[key] for key in ("flops", "bytes", "chain_bytes")}
            check.save("ceilings", found)
    return found


# ---- compute-sanitizer ----------------------------------------------------------------------------------------

# Whole trainings in small are most of what there is; (case, traced).
TRAININGS = [("transformer12", 1), ("resnet50", 0), ("lenet64", 1), ("mlp64", 0)]


def sanitizer(check):
    """memcheck over trainings and tests, then racecheck over what shares memory within a block."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not pathlib.Path(tool).exists():
        return {"outcome": "no compute-sanitizer here"}
    found = {"trainings": {}}

    def prefix(kind):
        return [tool, "--tool", kind, "--error-exitcode=9", *(["--leak-check=no"] if kind == "memcheck" else [])]

    def train(item):
        kind, case, traced, dtype = item
        return item, check.run([*prefix(kind), HERE / "bin/train_step", "--device", "gpu", "--case", case, "--tiny", 1,
                                "--traced", traced, "--dtype", dtype, "--check", 2, "--seconds", "0"], 150)

    work = [(kind, case, traced, dtype) for kind in ("memcheck", "racecheck") for case, traced in TRAININGS
            for dtype in ("float32", "bfloat16")]
    with concurrent.futures.ThreadPoolExecutor(check.options.jobs) as pool:
        for (kind, case, traced, dtype), (good, text) in pool.map(train, work):
            name = f"{kind} {case} {dtype}"
            found["trainings"][name] = "passed" if good else "failed"
            check.save("sanitizer", found)
            if not good:
                check.failed = True
                check.keep_log(name, text)
    end, check.part_end = check.part_end, check.part_end - check.left() / 3
    tests = [f"{name}_test" for name in [*CONFORMANCE, "ops"]]
    found.update(run_tests(check, tests, "OnGpu*:*Conformance*:*Gradient*", 150, prefix("memcheck")))
    check.save("sanitizer", found)
    check.part_end = end
    found["racecheck"] = run_tests(check, ["ops_test"], "*Reduce*:*Softmax*:*Norm*:*Attention*:*Pool*:*Cumsum*", 150,
                                   prefix("racecheck"))
    return found
