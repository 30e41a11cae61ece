"""All-reduces between processes of this host, by each backend and by the libraries beneath it."""

import collections
import json
import os
import pathlib
import statistics

from bench_parts.common import BUILD, ROOT, output_of, ratio, size_text, table


def comm_programs(ranks, python):
    """The programs that time an all-reduce: name -> command."""
    mpirun = ["mpirun", "-n", str(ranks)]
    if ranks > len(os.sched_getaffinity(0)):
        mpirun += ["--oversubscribe", "--bind-to", "none"]
    programs = {
        "shm": [BUILD / "allreduce", "--ranks", str(ranks)],
        "openmpi": [*mpirun, BUILD / "mpi_allreduce"],
        "gloo": [BUILD / "allreduce", "--backend", "gloo", "--ranks", str(ranks)],
        "bare gloo": [BUILD / "gloo_allreduce", "--ranks", str(ranks)],
        "mpi": [*mpirun, BUILD / "allreduce", "--backend", "mpi"],
        "pytorch gloo": [python, ROOT / "benchmarks/peers/torch_allreduce.py", "--ranks", str(ranks)],
    }
    if ranks > 2:  # halves of the ranks are hosts
        programs["hierarchical"] = [BUILD / "allreduce", "--backend", "hierarchical", "--ranks", str(ranks)]
    return {name: command for name, command in programs.items()
            if all(not str(word).startswith(str(BUILD)) or pathlib.Path(word).exists() for word in command)}


def measure_comm(name, command, seconds):
    environment = {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for line in output_of([*command, "--seconds", str(seconds)], environment).splitlines():
        if line.startswith("{"):
            result = json.loads(line)
            yield {"program": name, "part": "comm", "ranks": result["ranks"], "bytes": result["bytes"],
                   "us": result["plain_us"], "shared_us": result.get("shared_us")}


COMM_COLUMNS = [("shm", "shared_us", "shm allocated"), ("shm", "us", "shm plain"), ("openmpi", "us", "Open MPI"),
                ("gloo", "us", "gloo"), ("bare gloo", "us", "bare Gloo"), ("pytorch gloo", "us", "PyTorch gloo"),
                ("mpi", "us", "mpi"), ("hierarchical", "us", "hierarchical")]
# (ours, other): the table shows the time of `other` over that of `ours`.
COMM_RATIOS = [("shm allocated", "Open MPI"), ("shm plain", "Open MPI"), ("shm allocated", "PyTorch gloo"),
               ("gloo", "bare Gloo"), ("gloo", "PyTorch gloo"), ("mpi", "Open MPI")]


def print_comm(records):
    results = collections.defaultdict(list)
    for record in records:
        if record.get("part") == "comm":
            for program, field, column in COMM_COLUMNS:
                if record["program"] == program and record.get(field) is not None:
                    results[record["ranks"], record["bytes"], column].append(record[field])
    medians = {key: statistics.median(values) for key, values in results.items()}
    columns = [column for _, _, column in COMM_COLUMNS]
    for ranks in sorted({ranks for ranks, _, _ in medians}):
        sizes = sorted({size for n, size, _ in medians if n == ranks})
        times, ratios = [], []
        for size in sizes:
            row = {column: medians.get((ranks, size, column)) for column in columns}
            times.append([size_text(size), *(f"{row[column]:.1f}" if row[column] else "-" for column in columns)])
            ratios.append([size_text(size), *(ratio(row[other], row[ours]) for ours, other in COMM_RATIOS)])
        table(f"All-reduce of float32 between {ranks} processes, us", ["bytes", *columns], times)
        table("How many times as fast", ["bytes", *(f"{ours} / {other}" for ours, other in COMM_RATIOS)], ratios)
