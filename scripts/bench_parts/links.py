"""Two ranks over gloo: on this host, and on two hosts that a link of limited speed joins (benchmarks/link.cc)."""

import collections
import json
import statistics
import tempfile

from bench_parts.common import BUILD, ROOT, Run, best_torch_environment, measure, output_of, ratio, size_text, table
from bench_parts.apis import TURN_MS, results_of, step_of_two

# Options of benchmarks/link. None means that both ranks run on this host.
LINKS = {"loopback": None, "10gbit": {"--mbit": 10000}, "1gbit": {"--mbit": 1000},
         "1gbit-1ms": {"--mbit": 1000, "--delay-us": 1000}, "10ms": {"--mbit": 10000, "--delay-us": 10000}}
LINK_CASES = ["mlp64", "mlp512", "lenet64"]
SIZES = [64 << 10, 1 << 20, 4 << 20, 25 << 20]
RUN_TWO = [ROOT / "build/release/tools/tandem", "run", "-n", "2", "--"]


def through(link):
    """The prefix of a command that runs it on two hosts joined by the link."""
    return [BUILD / "link", *(word for option in link.items() for word in option)]


def all_reduce(program, link, size, seconds, python):
    """Microseconds per all-reduce."""
    command = {"tandem": [BUILD / "allreduce", "--backend", "gloo"], "bare gloo": [BUILD / "gloo_allreduce"],
               "pytorch": [python, ROOT / "benchmarks/peers/torch_allreduce.py"]}[program]
    command = [*command, "--bytes", size, "--seconds", seconds]
    with tempfile.TemporaryDirectory() as folder:
        if link:
            command = [*through(link), *command, *(["--store", folder] if program != "tandem" else [])]
        output = output_of(command, {"OMP_NUM_THREADS": "1"})
    return next(json.loads(line)["plain_us"] for line in output.splitlines() if line.startswith("{"))


def step(program, link, case, steps, cycles, python):
    options = ["--case", case, "--threads", "1", "--steps", steps, "--cycles", cycles]
    run_two = through(link) if link else RUN_TWO
    if program == "pytorch":
        output = output_of([*run_two, python, ROOT / "benchmarks/peers/torch_step.py", *options], best_torch_environment(1))
    else:
        output = output_of([*run_two, BUILD / "api_step", *options, "--api", "ddp", "--backend", "gloo"])
    return step_of_two(results_of(output))


def measure_links(options):
    for name in options.links:
        for size in SIZES:
            for program in ("bare gloo", "tandem", "pytorch"):
                yield {"program": program, "part": "links", "link": name, "bytes": size,
                       "us": all_reduce(program, LINKS[name], size, options.seconds / 2, options.python)}
    for case in (case for case in LINK_CASES if case in options.cases):
        single = {program: measure(Run(program, case), options.seconds / 4, options)
                  for program in ("tandem", "pytorch")}
        size = 4 * single["tandem"]["parameters"]
        steps = {program: max(4, round(TURN_MS / result["ms"])) for program, result in single.items()}
        for name in options.links:
            yield {"program": "tandem", "part": "links", "link": name, "case": case, "bytes": size,
                   "us": all_reduce("tandem", LINKS[name], size, options.seconds / 2, options.python)}
            for program, count in steps.items():
                cycles = max(2, round(options.seconds * 1e3 / TURN_MS / 4))
                yield {"program": program, "part": "links", "link": name, "case": case,
                       **step(program, LINKS[name], case, count, cycles, options.python)}


def print_links(records):
    found = collections.defaultdict(list)
    for record in records:
        if record.get("part") == "links":
            for field in ("us", "alone_ms", "apart_ms", "together_ms"):
                value = record.get(field)
                found[record["link"], record.get("case", record.get("bytes")), record["program"], field] += (
                    value if isinstance(value, list) else [value] if value is not None else [])
    medians = {key: statistics.median(values) for key, values in found.items() if values}
    links = list(dict.fromkeys(link for link, *_ in medians))
    rows = []
    for link in links:
        for size in SIZES:
            ours, bare, torch = (medians.get((link, size, program, "us")) for program in ("tandem", "bare gloo", "pytorch"))
            if ours:
                rows.append([link, size_text(size), *(f"{us:.0f}" for us in (ours, bare, torch)), ratio(ours, bare),
                             ratio(torch, ours)])
    table("All-reduce of float32 over gloo, 2 ranks, us",
          ["link", "bytes", "tandem", "bare Gloo", "pytorch", "tandem/bare Gloo", "pytorch/tandem"], rows)
    rows = []
    for link in links:
        for case in LINK_CASES:
            all_reduced = medians.get((link, case, "tandem", "us"))
            if not all_reduced:
                continue
            alone, apart, ours = (medians[link, case, "tandem", way] for way in ("alone_ms", "apart_ms", "together_ms"))
            torch = medians[link, case, "pytorch", "together_ms"]
            limit = alone + 1.3 * all_reduced / 1e3
            trip = 2 * (LINKS[link] or {}).get("--delay-us", 0) / 1e3
            rows.append([link, case, f"{alone:.2f}", f"{apart:.2f}", f"{all_reduced / 1e3:.2f}", f"{ours:.2f}", f"{torch:.2f}",
                         ratio(ours, limit), ratio(torch, ours), *(ratio(ms - alone, trip) for ms in (ours, torch))])
    table("A step under DistributedDataParallel over gloo, 2 ranks of one thread, ms",
          ["link", "case", "alone", "two apart", "all-reduce", "in step", "pytorch in step", "in step/(alone + 1.3 all-reduce)",
           "pytorch/tandem", "round trips", "pytorch's"], rows)
