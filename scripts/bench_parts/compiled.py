"""Training steps that a PJRT plug-in compiles, against the same steps in JAX and on Tandem's CPUs."""

import collections
import json
import os
import statistics

from bench_parts.common import BUILD, ROOT, output_of, table

CASES = ["mlp512", "lenet64", "resnet20", "transformer4"]
REPLICAS = [1, 4]
CORES = len(os.sched_getaffinity(0))


def plugin():
    """The path of the plug-in: of the two of scripts/setup --tpu, the one whose XLA is closer to JAX's."""
    return os.environ.get("TANDEM_PJRT_PLUGIN") or str(ROOT / "build/pjrt/pjrt_c_api_cpu_plugin.so")


def command_of(program, case, replicas, options):
    words = ["--case", case, "--replicas", str(replicas), "--seconds", str(options.seconds)]
    if program == "jax":
        return [options.jax, ROOT / "benchmarks/peers/jax_step.py", *words]
    step = [BUILD / "train_step", *words, "--traced", "1"]
    if program == "cpus":
        return [*step, "--threads", str(max(1, CORES // replicas))]
    return [*step, "--device", "tpu", "--threads", "1"]


def measure_compiled(options):
    """Milliseconds per step, one record per program, case and number of replicas; each has the case's batch."""
    environment = {"TANDEM_PJRT_PLUGIN": plugin()}
    for case in CASES:
        for replicas in REPLICAS:
            for program in ["tandem", "cpus", *(["jax"] if options.jax else [])]:
                line = output_of(command_of(program, case, replicas, options), environment).splitlines()[-1]
                yield {"program": program, "part": "compiled", "case": case, "replicas": replicas,
                       "ms": json.loads(line)["ms"]}


def print_compiled(records):
    by_case = collections.defaultdict(lambda: collections.defaultdict(list))
    for record in records:
        if record.get("part") == "compiled":
            by_case[record["case"], record["replicas"]][record["program"]].append(record["ms"])
    rows = []
    for (case, replicas), found in by_case.items():
        ours = statistics.median(found["tandem"])
        row = [case, str(replicas), f"{ours:.1f}"]
        for program in ("jax", "cpus"):
            other = statistics.median(found[program]) if found[program] else None
            row += [f"{other:.1f}", f"{ours / other:.2f}"] if other else ["-", "-"]
        rows.append(row)
    table("Training steps compiled by XLA for CPU devices, ms per step",
          ["case", "replicas", "tandem", "jax", "tandem / jax", "traced, CPUs", "tandem / traced"], rows)
