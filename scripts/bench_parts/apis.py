"""Two processes that train: alone, at once, and in step under each API."""

import collections
import json
import math
import pathlib
import re
import statistics
import tempfile

from bench_parts.common import BUILD, ROOT, Run, best_torch_environment, measure, output_of, ratio, table

APIS = ["ddp", "mwms", "hvd"]  # those that train with several processes
API_CASES = ["mlp64", "mlp512", "lenet64", "resnet20"]
TURN_MS = 150  # how long each turn lasts: one process alone, both apart, both in step


def union(intervals):
    """The total time that at least one of the intervals covers."""
    length, end = 0, -math.inf
    for begin, until in sorted(intervals):
        length += max(until - max(begin, end), 0)
        end = max(end, until)
    return length


COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "exchange")


def hidden_share(trace):
    """The share of the time with collectives under way that the program did not spend waiting for one.

    Time in which several collectives are under way counts once.
    """
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X"]
    under_way, waits = ([(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] in names]
                        for names in (COLLECTIVES, [f"wait for {name}" for name in COLLECTIVES]))
    length = union(under_way)
    return (union(under_way + waits) - union(waits)) / length if length else None


def run_two(program, environment=None):
    """Runs two processes, each on its own core, and returns their results."""
    command = [ROOT / "build/release/tools/tandem", "run", "-n", "2", "--", *program]
    return results_of(output_of(command, environment))


def results_of(output):
    """Parses the JSON lines of several processes, with or without a rank prefix."""
    # Lines of two ranks may come without a line break between them.
    return [json.JSONDecoder().raw_decode(output, match.start())[0] for match in re.finditer(r'\{"program"', output)]


def step_of_two(results):
    """Milliseconds per step in each cycle, averaged over both processes."""
    return {way: [statistics.mean(both) for both in zip(*(result[way] for result in results))]
            for way in ("alone_ms", "apart_ms", "together_ms")}


def measure_api(api, case, traced, steps, cycles, python):
    """Two processes of one thread, each with the case's batch: alone in turn, both at once, and in step."""
    options = ["--case", case, "--threads", "1", "--steps", str(steps), "--cycles", str(cycles)]
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        if api == "pytorch":
            program = [python, ROOT / "benchmarks/peers/torch_step.py", *options]
            results = run_two(program, best_torch_environment(1))
        else:
            program = [BUILD / "api_step", *options, "--api", api, "--traced", str(int(traced)), "--trace", trace]
            results = run_two(program)
        hidden = hidden_share(trace) if trace.exists() else None
    return {"program": "api", "api": api, "case": case, "traced": traced, **step_of_two(results), "hidden": hidden}


def measure_apis(options):
    """Measures each API, PyTorch's DDP, and a barrier without gradients."""
    for case in options.cases:
        if case not in API_CASES:
            continue
        step_ms = {program: measure(Run(program, case), options.seconds / 4, options)["ms"]
                   for program in ("tandem", "traced", "pytorch")}
        for api in ["barrier", *APIS, "pytorch"]:
            for traced in ([False] if api == "pytorch" else [False, True]):
                ms = step_ms["pytorch" if api == "pytorch" else "traced" if traced else "tandem"]
                steps = max(4, round(TURN_MS / ms))
                cycles = max(2, round(options.seconds * 1e3 / (steps * ms)))
                yield measure_api(api, case, traced, steps, cycles, options.python)


def efficiencies(records, way):
    """The scaling efficiency of each cycle: one process's time over that of two."""
    return [alone / ms for record in records for alone, ms in zip(record["alone_ms"], record[way])]


def print_apis(records):
    apis = collections.defaultdict(list)
    for record in records:
        if record["program"] == "api":
            apis[record["case"], record["api"], record["traced"]].append(record)
    rows = []
    efficiency = {key: efficiencies(found, "together_ms") for key, found in apis.items()}
    for (case, api, traced), found in sorted(apis.items()):
        in_step = efficiency[case, api, traced]
        low, middle, high = statistics.quantiles(in_step, n=4)
        barrier = statistics.median(efficiency[case, "barrier", traced])
        hidden = [r["hidden"] for r in found if r.get("hidden") is not None]
        rows.append([case, api, "traced" if traced else "eager",
                     f"{statistics.median(ms for r in found for ms in r['alone_ms']):.2f}",
                     f"{statistics.median(ms for r in found for ms in r['together_ms']):.2f}",
                     f"{middle:.2f} ({low:.2f}-{high:.2f})",
                     f"{statistics.median(efficiencies(found, 'apart_ms')):.2f}",
                     f"{middle / barrier:.2f}" if api not in ("barrier", "pytorch") else "-",
                     f"{statistics.median(hidden):.0%}" if hidden else "-"])
    table("Two processes of one thread, each with the case's batch, against one: medians of cycles (quartiles)",
          ["case", "api", "step", "1 process, ms", "2 processes, ms", "scaling efficiency", "of two apart",
           "against the barrier's", "communication hidden"], rows)
