"""Two processes that train: alone, at once, and in step under each API."""

import collections
import json
import math
import pathlib
import re
import statistics
import tempfile

from bench_parts.common import BUILD, ROOT, best_torch_environment, measure, output_of, ratio, table

FACES = ["ddp", "mwms", "hvd"]  # of many processes
FACE_CASES = ["mlp64", "mlp512", "lenet64", "resnet20"]
TURN_MS = 150  # how long one of two processes runs alone, or both together, before the other way's turn


def union(intervals):
    """How long at least one of the intervals lasts."""
    length, end = 0, -math.inf
    for begin, until in sorted(intervals):
        length += max(until - max(begin, end), 0)
        end = max(end, until)
    return length


COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "exchange")


def hidden_share(trace):
    """Which part of the time that collectives were under way the program did something else than wait for one.

    Several that are under way at once count once.
    """
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e.get("ph") == "X"]
    under_way, waits = ([(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] in names]
                        for names in (COLLECTIVES, [f"wait for {name}" for name in COLLECTIVES]))
    length = union(under_way)
    return (union(under_way + waits) - union(waits)) / length if length else None


def run_two(program, environment=None):
    """The figures of two processes, each on a core of its own."""
    command = [ROOT / "build/release/tools/tandem", "run", "-n", "2", "--", *program]
    return figures_of(output_of(command, environment))


def figures_of(output):
    """Of processes whose lines begin with their ranks, or do not."""
    # Lines of two ranks may come without a line break between them.
    return [json.JSONDecoder().raw_decode(output, match.start())[0] for match in re.finditer(r'\{"program"', output)]


def step_of_two(figures):
    """Milliseconds of a step in each cycle, on average over both processes."""
    return {way: [statistics.mean(both) for both in zip(*(figure[way] for figure in figures))]
            for way in ("alone_ms", "apart_ms", "together_ms")}


def measure_face(face, case, traced, steps, cycles, python):
    """Two processes of one thread, each with the case's batch: alone in turn, both at once, and in step."""
    options = ["--case", case, "--threads", "1", "--steps", str(steps), "--cycles", str(cycles)]
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json"
        if face == "pytorch":
            program = [python, ROOT / "benchmarks/peers/torch_step.py", *options]
            figures = run_two(program, best_torch_environment(1))
        else:
            program = [BUILD / "face_step", *options, "--face", face, "--traced", str(int(traced)), "--trace", trace]
            figures = run_two(program)
        hidden = hidden_share(trace) if trace.exists() else None
    return {"program": "face", "face": face, "case": case, "traced": traced, **step_of_two(figures), "hidden": hidden}


def measure_faces(options):
    """Each face, PyTorch's, and processes that wait for each other alone."""
    for case in options.cases:
        if case not in FACE_CASES:
            continue
        step_ms = {program: measure(program, case, 1, 1, options.seconds / 4, options.python)["ms"]
                   for program in ("tandem", "traced", "pytorch")}
        for face in ["barrier", *FACES, "pytorch"]:
            for traced in ([False] if face == "pytorch" else [False, True]):
                ms = step_ms["pytorch" if face == "pytorch" else "traced" if traced else "tandem"]
                steps = max(4, round(TURN_MS / ms))
                cycles = max(2, round(options.seconds * 1e3 / (steps * ms)))
                yield measure_face(face, case, traced, steps, cycles, options.python)


def efficiencies(records, way):
    """The scaling efficiency of each cycle: one process's time over that of two."""
    return [alone / ms for record in records for alone, ms in zip(record["alone_ms"], record[way])]


def print_faces(records):
    faces = collections.defaultdict(list)
    for record in records:
        if record["program"] == "face":
            faces[record["case"], record["face"], record["traced"]].append(record)
    rows = []
    efficiency = {key: efficiencies(found, "together_ms") for key, found in faces.items()}
    for (case, face, traced), found in sorted(faces.items()):
        in_step = efficiency[case, face, traced]
        low, middle, high = statistics.quantiles(in_step, n=4)
        barrier = statistics.median(efficiency[case, "barrier", traced])
        hidden = [r["hidden"] for r in found if r.get("hidden") is not None]
        rows.append([case, face, "traced" if traced else "eager",
                     f"{statistics.median(ms for r in found for ms in r['alone_ms']):.2f}",
                     f"{statistics.median(ms for r in found for ms in r['together_ms']):.2f}",
                     f"{middle:.2f} ({low:.2f}-{high:.2f})",
                     f"{statistics.median(efficiencies(found, 'apart_ms')):.2f}",
                     f"{middle / barrier:.2f}" if face not in ("barrier", "pytorch") else "-",
                     f"{statistics.median(hidden):.0%}" if hidden else "-"])
    table("Two processes of one thread, each with the case's batch, against one: medians of cycles (quartiles)",
          ["case", "face", "step", "1 process, ms", "2 processes, ms", "scaling efficiency", "of two apart",
           "against the barrier's", "communication hidden"], rows)
