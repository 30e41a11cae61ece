"""Shared by the parts of scripts/bench: paths, running programs, tables."""

import json
import os
import pathlib
import platform
import subprocess
import sys
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build/release/benchmarks"
OPENBLAS = pathlib.Path(f"/usr/lib/{platform.machine()}-linux-gnu/openblas-openmp")
TCMALLOC = "libtcmalloc_minimal.so.4"
ATTENTION = ["forward-16x12x128x64", "full-16x12x128x64", "causal-4x12x512x64", "full-1x8x2048x64", "causal-1x8x2048x64"]


# The flags of /proc/cpuinfo that decide how fast matrix products are.
CPU_FLAGS = ["avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16"]


def cpu_fact(name):
    return next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith(name)), "?")


def cpu_flags():
    flags = cpu_fact("flags").split()
    return [flag for flag in CPU_FLAGS if flag in flags]


def best_torch_environment(threads):
    environment = {"OMP_NUM_THREADS": str(threads), "LD_PRELOAD": TCMALLOC}
    if OPENBLAS.is_dir():
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(OPENBLAS), os.environ.get("LD_LIBRARY_PATH")]))
    return environment


def output_of(command, environment=None, timeout=600):
    """Returns the standard output. If the command fails, exits the script with its standard error."""
    result = subprocess.run(list(map(str, command)), env={**os.environ, **(environment or {})}, capture_output=True,
                            text=True, timeout=timeout)
    if result.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{result.stderr}")
    return result.stdout


class Program:
    """A program that answers each line with a line of JSON."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen([str(word) for word in command], env={**os.environ, **environment},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer(line)

    def answer(self, line="its start"):
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"bench: {self.process.args[0]} ended at: {line[:200]}")
        return json.loads(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


class Run(typing.NamedTuple):
    """A program that trains or computes a case."""

    program: str
    case: str
    threads: int = 1
    replicas: int = 1
    dtype: str = "float32"


def command_of(run, seconds, options):
    """The command and its environment. `options` has the interpreters of PyTorch and TensorFlow."""
    words = ["--case", run.case, "--threads", str(run.threads), "--seconds", str(seconds)]
    peers = ROOT / "benchmarks/peers"
    torch = best_torch_environment(run.threads)
    if run.case in ATTENTION:
        if run.program == "tandem":
            return [BUILD / "attention", *words], {}
        return [options.python, peers / "torch_attention.py", *words], torch
    if run.program == "libtorch":
        return [BUILD / "libtorch_mlp", *words], torch
    words += ["--dtype", run.dtype]
    if run.program in ("tandem", "traced"):
        traced = str(int(run.program == "traced"))
        return [BUILD / "train_step", *words, "--replicas", str(run.replicas), "--traced", traced], {}
    if run.program == "bound":
        return [BUILD / "bound", *words], {"OMP_NUM_THREADS": str(run.threads)}
    if run.program in ("tensorflow", "xla"):
        return [options.tensorflow, peers / "tf_step.py", *words, *(["--xla"] if run.program == "xla" else [])], {}
    compiled = ["--compile"] if run.program == "compiled" else []
    return [options.python, peers / "torch_step.py", *words, *compiled], torch


def measure(run, seconds, options):
    command, environment = command_of(run, seconds, options)
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


def size_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
