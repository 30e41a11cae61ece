"""Operations, one by one, against PyTorch: forward and backward passes at three sizes. Both programs run for the whole
measurement and take turns, cell by cell."""

import collections
import json
import math
import re
import statistics
import sys
import time

from bench_parts.common import BUILD, ROOT, Program, best_torch_environment, table

SIZES = ["small", "middle", "large"]
SLOW = 0.9  # ratios below this are counted
# The tolerance of sums, relative to the sum of the absolute values.
APART = 1e-4


class Pair:
    """Tandem and PyTorch with one number of threads."""

    def __init__(self, threads, options):
        words = ["--threads", str(threads)]
        self.tandem = Program([BUILD / "operations", *words], {"OMP_NUM_THREADS": str(threads)})
        self.torch = Program([options.python, ROOT / "benchmarks/peers/torch_operations.py", *words],
                             best_torch_environment(threads))
        self.cases = [case for case in self.tandem.ask("list") if re.search(options.operations, case["case"])]

    def end(self):
        self.tandem.end()
        self.torch.end()

    def check(self, case):
        """What differs between the results of both, or what PyTorch lacks."""
        theirs = self.torch.ask(json.dumps({"request": "check", "case": case}))
        if "error" in theirs:
            return theirs["error"]
        ours = self.tandem.ask(f"check {case['case']}")
        if case["random"]:
            return None
        if len(ours["sums"]) != len(theirs["sums"]):
            return f"{len(ours['sums'])} results and gradients, PyTorch has {len(theirs['sums'])}"
        for i, (mine, other) in enumerate(zip(ours["sums"], theirs["sums"])):
            if any(abs(a - b) > APART * max(abs(mine[1]), abs(other[1]), 1e-3) for a, b in zip(mine, other)):
                name = "the result" if i == 0 else f"gradient {i}"
                return f"{name} has the sum and the sum of absolute values {mine}, PyTorch's {other}"
        return None

    def measure(self, case, size, dtype, which, seconds):
        """(nanoseconds of Tandem, nanoseconds of PyTorch), or what PyTorch lacks."""
        theirs = self.torch.ask(json.dumps({"request": "measure", "case": case, "size": size, "dtype": dtype,
                                            "pass": which, "seconds": seconds}))
        if "error" in theirs:
            return theirs["error"]
        return self.tandem.ask(f"measure {case['case']} {size} {dtype} {which} {seconds}")["ns"], theirs["ns"]


def passes_of(case):
    has_gradient = any(given["gradient"] for given in case["sizes"]["small"]["inputs"])
    return ["forward", "backward"] if case["backward"] and has_gradient else ["forward"]


def measure_operations(options):
    """One record per cell. A cell's rounds follow each other, so that inputs are made once."""
    seconds = options.seconds / 40
    for threads in options.threads:
        pair, wrong, begin = Pair(threads, options), [], time.monotonic()
        for i, case in enumerate(pair.cases):
            problem = pair.check(case)
            if problem:
                wrong.append((case["case"], problem))
                continue
            if sys.stderr.isatty():
                print(f"\r{i + 1}/{len(pair.cases)}, {threads} threads, {time.monotonic() - begin:.0f} s: {case['case']}\033[K",
                      end="", file=sys.stderr)
            for size in options.sizes:
                for dtype in options.dtypes if case["dtypes"] else ["float32"]:
                    for which in passes_of(case):
                        rounds = [pair.measure(case, size, dtype, which, seconds) for _ in range(options.rounds)]
                        cell = {"program": "operations", "part": "operations", "case": case["case"], "size": size,
                                "shape": case["sizes"][size]["shape"], "dtype": dtype, "pass": which, "threads": threads}
                        if isinstance(rounds[0], str):
                            wrong.append((f"{case['case']} {dtype}", rounds[0]))
                            break
                        ours, theirs = zip(*rounds)
                        yield {**cell, "ns": ours, "pytorch_ns": theirs}
        pair.end()
        for name, problem in dict.fromkeys(wrong):
            print(f"bench: {name} is not compared: {problem}", file=sys.stderr)


def duration_text(ns):
    return f"{ns / 1e3:.2f} us" if ns < 1e6 else f"{ns / 1e6:.2f} ms"


def print_operations(records, options):
    cells = []
    for record in records:
        if record.get("part") == "operations":
            ours, theirs = statistics.median(record["ns"]), statistics.median(record["pytorch_ns"])
            ratios = [b / a for a, b in zip(record["ns"], record["pytorch_ns"])]
            cells.append((statistics.median(ratios), ours, theirs, ratios, record))
    if not cells:
        return
    cells.sort(key=lambda cell: cell[0])
    rows = [[c["case"], "x".join(map(str, c["shape"])), c["dtype"], c["pass"], c["threads"], duration_text(ours),
             duration_text(theirs), f"{ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"]
            for ratio, ours, theirs, ratios, c in cells[:options.worst]]
    table(f"Operations, the {len(rows)} worst of {len(cells)} cells: medians, PyTorch's time over Tandem's (least-most)",
          ["operation", "first input", "dtype", "pass", "threads", "tandem", "pytorch", "pytorch/tandem"], rows)
    groups = collections.defaultdict(list)
    for ratio, *_, c in cells:
        for key in (("all", "", "", ""), (c["threads"], c["size"], c["dtype"], c["pass"])):
            groups[key].append(ratio)
    rows = [[*key, len(found), f"{math.exp(statistics.fmean(map(math.log, found))):.2f}",
             sum(ratio < SLOW for ratio in found)] for key, found in groups.items()]
    table("Operations, PyTorch's time over Tandem's",
          ["threads", "size", "dtype", "pass", "cells", "geometric mean", f"cells below {SLOW}"], rows)
