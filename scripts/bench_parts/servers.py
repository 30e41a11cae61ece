"""Asynchronous training with parameter servers, against TensorFlow's."""

import collections
import re
import statistics

from bench_parts.common import BUILD, ROOT, output_of, table

MODELS = {"mlp512": 200, "recommender": 400}  # steps per cycle
WORKERS = [1, 2, 4]
SERVERS = 2
SNAPSHOTS = {"a snapshot in 10 s": 10, "no snapshots": 1_000_000}  # seconds between them
SNAPSHOT_CYCLES = 60  # in one, so that it has several snapshots
PROGRAMS = {"tandem": 1, "tandem, two calls": 2, "tandem, three calls": 3, "tensorflow": 1}  # calls per worker


def tandem_command(workers, *arguments):
    return [ROOT / "build/release/tools/tandem", "run", "--ps", str(SERVERS), "--workers", str(workers), "--chief",
            "--", BUILD / "parameter_server", *arguments]


def command_of(program, model, workers, python):
    steps = ["--steps", str(MODELS[model])]
    if program == "tensorflow":
        return [python, ROOT / "benchmarks/peers/tf_parameter_server.py", model, "--ps", str(SERVERS), "--workers",
                str(workers), *steps, "--cycles", "3"]
    return tandem_command(workers, model, *steps, "--cycles", "3", "--calls", str(PROGRAMS[program]))


def rates_of(command):
    output = output_of(command, {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})
    return [float(value) for value in re.findall(r"steps_per_second ([0-9.]+)", output)]


def measure_servers(options):
    """Steps per second, one record per program, model and number of workers."""
    for model in options.models:
        for workers in WORKERS:
            for program in PROGRAMS:
                if program == "tensorflow" and not options.tensorflow:
                    continue
                found = rates_of(command_of(program, model, workers, options.tensorflow))
                yield {"program": program, "part": "servers", "case": model, "workers": workers,
                       "steps_per_second": statistics.median(found)}


def measure_snapshots(options):
    """The same with two workers, for some minutes, with and without snapshots."""
    for model in options.models:
        for program, seconds in SNAPSHOTS.items():
            steps = str(SNAPSHOT_CYCLES * MODELS[model])
            [rate] = rates_of(tandem_command(2, model, "--steps", steps, "--cycles", "1",
                                             "--snapshot-seconds", str(seconds)))
            yield {"program": program, "part": "snapshots", "case": model, "steps_per_second": rate}


def print_snapshots(records):
    rows = []
    for model in MODELS:
        rates = [[record["steps_per_second"] for record in records if record.get("part") == "snapshots"
                  and record["case"] == model and record["program"] == program] for program in SNAPSHOTS]
        if all(rates):
            with_them, without = map(statistics.median, rates)
            spread = max(max(each) / min(each) for each in rates)
            rows.append([model, f"{with_them:.1f}", f"{without:.1f}", f"{with_them / without:.3f}", f"{spread:.3f}"])
    table("Parameter servers with and without snapshots, two workers: steps per second",
          ["model", *SNAPSHOTS, "ratio", "largest spread"], rows)


def print_servers(records):
    by_case = collections.defaultdict(lambda: collections.defaultdict(list))
    for record in records:
        if record.get("part") == "servers":
            by_case[record["case"], record["workers"]][record["program"]].append(record["steps_per_second"])
    rows = []
    for (case, workers), found in by_case.items():
        *ours, theirs = (statistics.median(found[program]) if found[program] else None for program in PROGRAMS)
        rates = [f"{rate:.0f}" if rate else "-" for rate in [*ours, theirs]]
        ratios = [f"{rate / theirs:.2f}" if theirs else "-" for rate in ours]
        rows.append([case, str(workers), *rates, *ratios])
    headings = [f"ratio, {calls}" for calls in list(PROGRAMS.values())[:-1]]
    table(f"Asynchronous training with {SERVERS} parameter servers, one thread per task: steps per second, ratios to "
          "TensorFlow's", ["model", "workers", *PROGRAMS, *headings], rows)
