"""Steps inside an MPI program (benchmarks/simulation.c), and what a trainer in the background costs the program.

The peer is libtorch as TorchFort uses it (peers/libtorch_simulation.cc), where Debian's Torch is installed: TorchFort
itself is not packaged, and its build needs a static yaml-cpp that Debian builds without position-independent code."""

import collections
import json
import os
import statistics

from bench_parts.common import BUILD, output_of, ratio, table

NETWORKS = ["1024-1024", "1024-512-512-1024"]
BATCHES = [1, 16]
RANKS = [1, 2]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}


def lines_of(ranks, command):
    run = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks, *command]
    return [json.loads(line) for line in output_of(run, AS_ROOT).splitlines() if line.startswith("{")]


def measure_simulation(options):
    calls = max(20, round(options.seconds * 100))
    programs = [BUILD / name for name in ("simulation", "libtorch_simulation") if (BUILD / name).exists()]
    for network in NETWORKS:
        for batch in BATCHES:
            for ranks in RANKS:
                for program in programs:
                    yield from lines_of(ranks, [program, "--network", network, "--batch", batch, "--calls", calls])
    if len(os.sched_getaffinity(0)) > 1:  # the trainer has a core of its own
        yield from lines_of(1, [BUILD / "simulation", "--background", calls])


def print_simulation(records):
    found = collections.defaultdict(list)
    for record in records:
        if record.get("part") == "simulation" and "network" in record:
            for field in ("train_ms", "predict_ms"):
                found[record["network"], record["batch"], record["ranks"], field, record["program"]].append(record[field])
    medians = {key: statistics.median(values) for key, values in found.items()}
    rows = []
    for key in dict.fromkeys(key[:4] for key in medians):
        ours, peer = medians.get((*key, "tandem")), medians.get((*key, "libtorch"))
        rows.append([key[0], str(key[1]), str(key[2]), key[3].removesuffix("_ms"), f"{ours:.3f}",
                     f"{peer:.3f}" if peer else "-", ratio(peer, ours) if peer else "-"])
    if rows:
        table("Inside an MPI program", ["network", "batch", "ranks", "step", "tandem ms", "libtorch ms", "times"], rows)
    beside = [record for record in records if record.get("background")]
    if beside:
        alone, together = (statistics.median(r[name] for r in beside) for name in ("alone_ms", "beside_ms"))
        table("A solver with a trainer in the background", ["alone ms", "beside ms", "loss"],
              [[f"{alone:.3f}", f"{together:.3f}", f"{100 * (together / alone - 1):.1f} %"]])
