"""Forward passes: Tandem's session of a frozen graph, traced function and eager call, against PyTorch and ONNX Runtime.
With one caller (inference), with two at once (callers), and while another program uses one of the cores (busy), there
with training steps, too."""

import collections
import math
import os
import statistics
import subprocess
import sys

from bench_parts.common import BUILD, ROOT, Program, best_torch_environment, ratio, table

PARTS = ["inference", "callers", "busy"]
BATCHES = {"mlp64": [1, 32], "lenet64": [1, 32], "resnet20": [1, 32], "resnet50": [1], "transformer4": [1, 8]}
SMALL = ["mlp64", "lenet64", "resnet20"]  # for two callers
OURS = ["session", "function", "eager"]
TRAINED = ["train eager", "train traced", "train pytorch"]
APART = 1e-3  # the tolerance of results, relative


def ways_of(options):
    return [*OURS, "pytorch", *(["frozen"] if options.compiled else []), *(["onnx"] if options.onnx else [])]


def start(way, case, threads, options):
    """The program that measures in this way."""
    words = ["--case", case, "--threads", threads]
    torch = best_torch_environment(threads)
    if way in OURS:
        return Program([BUILD / "inference", *words], {})
    if way == "train pytorch":
        return Program([options.python, ROOT / "benchmarks/peers/torch_step.py", *words, "--serve", 1,
                        "--seconds", options.seconds / 2], torch)
    if way in TRAINED:
        return Program([BUILD / "train_step", *words, "--serve", 1, "--seconds", options.seconds / 2, "--traced",
                        int(way == "train traced")], {})
    return Program([options.python, ROOT / "benchmarks/peers/torch_inference.py", *words], torch)


def check(case, batch, answers):
    """Ends the script if the programs compute different numbers. PyTorch pads images on the other side where the stride
    is 2."""
    ways = [way for way in answers if way in OURS or not case.startswith("resnet")]
    for way in ways:
        for ours, other in zip(answers[ways[0]]["result"], answers[way]["result"]):
            if not math.isclose(ours, other, rel_tol=APART, abs_tol=APART):
                sys.exit(f"bench: {case}, batch {batch}: {ways[0]} computes {ours}, {way} {other}")


class Busy:
    """A program that uses the last core as long as this lives."""

    def __enter__(self):
        core = max(os.sched_getaffinity(0))
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                        preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def measure_case(part, case, threads, callers, options, ways):
    """The rounds of one case: the ways take turns. {(way, batch): record without the times}."""
    programs = {}
    for way in ways:
        shared = next((programs[other] for other in OURS if other in programs), None) if way in OURS else None
        programs[way] = shared or start(way, case, threads, options)
        if way in TRAINED and not shared:
            programs[way].answer()  # it is ready
    trains = ways[0] in TRAINED
    for turn in range(options.rounds):
        for batch in ["-"] if trains else BATCHES[case]:
            answers = {}
            for way in ways:
                name = {"pytorch": "eager"}.get(way, way)
                answers[way] = programs[way].ask("go" if trains else
                                                 f"{name} {batch} {options.seconds / 8} {callers}")
                answer = answers[way]
                yield {"program": way, "part": part, "case": case, "batch": batch, "threads": threads,
                       "callers": callers, "ms": answer["ms"], "ms_per_call": answer.get("ms_per_call"), "round": turn}
            if not trains:
                check(case, batch, answers)
    for program in set(programs.values()):
        program.end()


def measure_inference(options):
    ways = ways_of(options)
    cases = [case for case in options.cases if case in BATCHES]
    for case in cases:
        if "inference" in options.parts:
            for threads in options.threads:
                yield from measure_case("inference", case, threads, 1, options, ways)
        if "callers" in options.parts and case in SMALL:
            for callers in (1, 2):
                yield from measure_case("callers", case, 1, callers, options, ways)
        if "busy" in options.parts:
            for wanted in (ways, TRAINED):
                yield from measure_case("one thread", case, 1, 1, options, wanted)
                yield from measure_case("quiet", case, 2, 1, options, wanted)
                with Busy():
                    yield from measure_case("busy", case, 2, 1, options, wanted)


def print_inference(records, options):
    found = collections.defaultdict(list)
    for record in records:
        if "batch" in record and "ms_per_call" in record:
            key = (record["part"], record["case"], record["batch"], record["threads"], record["callers"])
            found[key, record["program"]].append(record["ms_per_call"] if record["callers"] > 1 else record["ms"])
    median = {key: statistics.median(values) for key, values in found.items()}
    least = {key: min(values) for key, values in found.items()}
    ways = ways_of(options)
    peers = [way for way in ways if way not in OURS]
    keys = list(dict.fromkeys(key for key, _ in found))

    rows = []
    for key in keys:
        if key[0] == "inference":
            ms = {way: least[key, way] for way in ways}
            rows.append([*key[1:4], *(f"{ms[way]:.4f}" for way in ways),
                         ratio(min(ms[way] for way in peers), min(ms[way] for way in OURS))])
    table("A forward pass, ms, least of the rounds", ["case", "batch", "threads", *ways, "best peer/best of Tandem"], rows)

    rows = []
    for key in keys:
        if key[0] == "callers" and key[4] == 2:
            one = (*key[:4], 1)
            rows.append([*key[1:3], *(f"{least[one, way]:.4f} {least[key, way]:.4f} "
                                      f"({least[one, way] / least[key, way]:.2f})" for way in ways)])
    table("Two callers of one thread each: ms per call of one caller, of both, and their ratio",
          ["case", "batch", *ways], rows)

    rows = []
    for part, *key in keys:
        if part == "busy":
            alone, quiet, busy = ("one thread", key[0], key[1], 1, 1), ("quiet", *key), ("busy", *key)
            for way in TRAINED if key[1] == "-" else ways:
                rows.append([*key[:2], way, *(f"{median[each, way]:.4f}" for each in (alone, quiet, busy)),
                             ratio(median[busy, way], median[alone, way])])
    table("Another program on one of the cores, ms, median of the rounds",
          ["case", "batch", "way", "1 thread, quiet", "2 threads, quiet", "2 threads, busy", "busy/1 thread"], rows)
