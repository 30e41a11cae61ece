"""Training steps that a PJRT plug-in compiles, against the same steps in JAX."""

import collections
import json
import os
import statistics

from bench_parts.common import BUILD, ROOT, output_of, table

CASES = ["mlp512", "lenet64", "resnet20", "transformer4"]
REPLICAS = [1, 4]
PLUGIN = ROOT / "build/pjrt/pjrt_c_api_cpu_plugin.so"  # of XLA's version that is the nearest to JAX's


def command_of(program, case, replicas, options):
    words = ["--case", case, "--replicas", str(replicas), "--seconds", str(options.seconds)]
    if program == "jax":
        return [options.jax, ROOT / "benchmarks/peers/jax_step.py", *words]
    return [BUILD / "train_step", *words, "--device", "tpu", "--traced", "1", "--threads", "1"]


def measure_compiled(options):
    """Milliseconds per step, one record per program, case and number of replicas; each has the case's batch."""
    environment = {"TANDEM_PJRT_PLUGIN": os.environ.get("TANDEM_PJRT_PLUGIN") or str(PLUGIN)}
    for case in CASES:
        for replicas in REPLICAS:
            for program in ["tandem", *(["jax"] if options.jax else [])]:
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
        theirs = statistics.median(found["jax"]) if found["jax"] else None
        rows.append([case, str(replicas), f"{ours:.1f}", f"{theirs:.1f}" if theirs else "-",
                     f"{ours / theirs:.2f}" if theirs else "-"])
    table("Training steps compiled by XLA for CPU devices, ms per step",
          ["case", "replicas", "tandem", "jax", "tandem / jax"], rows)
