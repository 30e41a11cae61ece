"""Training steps of Tandem against PyTorch's, eager and compiled, on the same weights and batches.

The programs of a group start together and prepare in parallel, because torch.compile takes long. Then they take turns,
round after round, while the others wait."""

import concurrent.futures
import math
import statistics
import sys

from gpu_check.check import HERE, Served

DTYPES = ["float32", "tf32", "bfloat16"]
# (case, batch, dtypes), the most important first. The programs of one group share the GPU's memory.
GROUPS = [("transformer12", 16, ["bfloat16", "float32"]), ("resnet50", 128, ["bfloat16", "float32"]),
          ("mlp64", 64, DTYPES), ("lenet64", 64, DTYPES), ("resnet50", 128, ["tf32"]),
          ("transformer12", 16, ["tf32"]), ("mlp512", 512, DTYPES)]
LARGE = ["transformer12", "resnet50"]
# "tuned" is the traced step with PyTorch's settings (torch_step.py): cuDNN's fastest algorithm, found by timing, even
# if its results differ from run to run. Groups of large models run without "eager", to fit into memory.
PROGRAMS = ["eager", "traced", "tuned", "pytorch", "compiled"]
STEPS_CHECKED = 8
PREPARED_WITHIN = 150  # seconds; programs that are not ready by then are left out
# The tolerance of losses after STEPS_CHECKED steps, relative to PyTorch's: sums have another order and rounding.
LOSS_APART = {"float32": 0.01, "tf32": 0.02, "bfloat16": 0.03}
# For ResNets only the first loss is compared: PyTorch pads images on the other side where the stride is 2.
FIRST_LOSS_APART = 0.1


def programs_of(case):
    return PROGRAMS[1:] if case in LARGE else [name for name in PROGRAMS if name != "tuned"]


def command_of(check, program, case, batch, dtype):
    options = check.options
    words = ["--case", case, "--dtype", dtype, "--check", STEPS_CHECKED, "--serve", 1, "--seconds", options.seconds]
    words += ["--device", "cpu", "--tiny", 1] if options.tiny else ["--device", "gpu", "--batch", batch, "--threads", 4]
    if program in ("pytorch", "compiled"):
        return [sys.executable, HERE / "torch_step.py", *words, *(["--compile"] if program == "compiled" else [])]
    tuned = ["TANDEM_CUDNN_AUTOTUNE=true", "TANDEM_DETERMINISTIC_OPS=false"] if program == "tuned" else []
    return ["env", "TANDEM_LOG_LEVEL=debug", *tuned, HERE / "bin/train_step", *words, "--traced", int(program != "eager")]


def measure_group(check, case, batch, dtypes):
    """{dtype: {program: results}}"""
    limit = min(PREPARED_WITHIN, check.left() - 10)
    started = {(dtype, program): Served(check, f"{case} {dtype} {program}", command_of(check, program, case, batch, dtype))
               for dtype in dtypes for program in programs_of(case)}
    times = {}
    try:
        with concurrent.futures.ThreadPoolExecutor(len(started)) as pool:
            ready = dict(zip(started, pool.map(lambda program: program.ready(limit), started.values())))
        times.update({key: [] for key, good in ready.items() if good})
        for _ in range(check.options.rounds):
            for key in times:
                if check.left() < 5:
                    break
                said = started[key].ask(min(60, check.left()))
                times[key].append(said["ms"] if said else None)
                if said:
                    started[key].facts.update({name: said.get(name) for name in ("peak_mib", "device_peak_mib")})
    finally:
        for program in started.values():
            program.close()
        for key, program in started.items():
            program.end(failed=not times.get(key) or None in times[key])
    rows = {dtype: {} for dtype in dtypes}
    for (dtype, program), results in times.items():
        good = [ms for ms in results if ms is not None]
        facts = started[dtype, program].facts
        rows[dtype][program] = {"ms": statistics.median(good) if good else None, "rounds": results,
                                "notes": started[dtype, program].notes,
                                **{name: facts.get(name) for name in ("version", "parameters", "losses", "peak_mib",
                                                                      "device_peak_mib", "flops", "bytes")}}
    return rows


def disagreements(case, dtype, row):
    """The differences that show that two programs did not train the same model."""
    wrong = []
    parameters = {results["parameters"] for results in row.values()}
    if len(parameters) > 1:
        wrong.append(f"{case} {dtype}: other numbers of parameters: {sorted(parameters)}")
    which, apart = (0, FIRST_LOSS_APART) if case.startswith("resnet") else (-1, LOSS_APART[dtype])
    reference = (row.get("pytorch") or row.get("traced") or {}).get("losses")
    if not reference:
        return [*wrong, f"{case} {dtype}: no losses to compare with"]
    for program, results in row.items():
        if not results["losses"] or not all(loss is not None and math.isfinite(loss) for loss in results["losses"]):
            wrong.append(f"{case} {dtype} {program}: its loss is not finite")
            continue
        mine, theirs = results["losses"][which], reference[which]
        if theirs and abs(mine / theirs - 1) > apart:
            wrong.append(f"{case} {dtype} {program}: a loss of {mine:.4g} where PyTorch has {theirs:.4g}")
    return wrong


def benchmarks(check):
    found = {"rows": {}, "wrong": [], "left out": []}
    for case, batch, dtypes in GROUPS:
        if check.options.cases and case not in check.options.cases:
            continue
        name = f"{case} {', '.join(dtypes)}"
        if check.left() < 45 and not check.options.tiny:
            found["left out"].append(name)
            continue
        print(f"    {name}", flush=True)
        for dtype, row in measure_group(check, case, batch, dtypes).items():
            found["rows"].setdefault(case, {})[dtype] = row
            found["wrong"] += disagreements(case, dtype, row)
            missing = [program for program in programs_of(case) if program != "compiled" and
                       not row.get(program, {}).get("ms")]
            found["wrong"] += [f"{case} {dtype} {program}: no result" for program in missing]
            check.save("benchmarks", found)
    check.failed |= bool(found["wrong"])
    return found
