"""Shared by the parts of scripts/bench: paths, running programs, tables."""

import json
import os
import pathlib
import platform
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build/release/benchmarks"
OPENBLAS = pathlib.Path(f"/usr/lib/{platform.machine()}-linux-gnu/openblas-openmp")
TCMALLOC = "libtcmalloc_minimal.so.4"
ATTENTION = ["forward-16x12x128x64", "full-16x12x128x64", "causal-4x12x512x64", "full-1x8x2048x64", "causal-1x8x2048x64"]


def best_torch_environment(threads):
    environment = {"OMP_NUM_THREADS": str(threads), "LD_PRELOAD": TCMALLOC}
    if OPENBLAS.is_dir():
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(OPENBLAS), os.environ.get("LD_LIBRARY_PATH")]))
    return environment


def output_of(command, environment=None):
    """Returns the standard output. If the command fails, exits the script with its standard error."""
    result = subprocess.run(list(map(str, command)), env={**os.environ, **(environment or {})}, capture_output=True,
                            text=True, timeout=600)
    if result.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{result.stderr}")
    return result.stdout


def command_of(program, case, threads, replicas, seconds, python):
    options = ["--case", case, "--threads", str(threads), "--seconds", str(seconds)]
    if case in ATTENTION:
        if program == "tandem":
            return [BUILD / "attention", *options], {}
        return [python, ROOT / "benchmarks/peers/torch_attention.py", *options], best_torch_environment(threads)
    if program in ("tandem", "traced"):
        return [BUILD / "train_step", *options, "--replicas", str(replicas), "--traced", str(int(program == "traced"))], {}
    if program == "bound":
        return [BUILD / "bound", *options], {"OMP_NUM_THREADS": str(threads)}
    if program == "libtorch":
        return [BUILD / "libtorch_mlp", *options], best_torch_environment(threads)
    compiled = ["--compile"] if program == "compiled" else []
    return [python, ROOT / "benchmarks/peers/torch_step.py", *options, *compiled], best_torch_environment(threads)


def measure(program, case, threads, replicas, seconds, python):
    command, environment = command_of(program, case, threads, replicas, seconds, python)
    environment = {**environment, "TANDEM_BENCH_STARTED": repr(time.clock_gettime(time.CLOCK_MONOTONIC))}
    return json.loads(output_of(command, environment).splitlines()[-1])


def table(title, header, rows):
    if not rows:
        return
    print(f"\n{title}")
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(str(cell).rjust(width) if i else str(cell).ljust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))))


def ratio(a, b):
    return f"{a / b:.2f}" if a and b else "-"


def efficiencies(records, way):
    """The scaling efficiency of each cycle: one process's time over that of two."""
    return [alone / ms for record in records for alone, ms in zip(record["alone_ms"], record[way])]


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
