"""Training steps: Tandem's, eager and traced, their bound, and those of PyTorch and TensorFlow. Also attention, two
replicas, and what a program takes to start."""

import collections
import math
import statistics

from bench_parts.common import ATTENTION, BUILD, Run, cpu_flags, ratio, table

CASES = ["mlp64", "mlp512", "lenet64", "resnet20", "resnet50", "transformer4"]
RECURRENT = ["lstm32", "gru32"]
DTYPES = ["float32", "bfloat16"]
TAGS = ["weights", "activations", "gradients", "optimizer", "workspace", "other"]


def peers_of(options):
    return ["pytorch", *(["compiled"] if options.compiled else []),
            *(["tensorflow", "xla"] if options.tensorflow else [])]


def bounds_of(run):
    """The runs whose fastest bounds this one. A step in bfloat16 may also compute in float32. Without instructions for
    bfloat16 that is always faster."""
    run = run._replace(program="bound")
    wide = run._replace(dtype="float32")
    return [run, wide] if run.dtype != "float32" and {"avx512_bf16", "amx_bf16"} & set(cpu_flags()) else [wide]


def runs_of_a_round(options):
    """The runs of one round, in order."""
    runs = []
    programs = ["tandem", "traced", "bound", *peers_of(options)]
    for case in options.cases:
        if "steps" in options.parts:
            for dtype in options.dtypes:
                for threads in options.threads:
                    wanted = [Run(program, case, threads, dtype=dtype) for program in programs]
                    for run in wanted:
                        runs += bounds_of(run) if run.program == "bound" else [run]
        if "replicas" in options.parts:
            runs += [Run(program, case, 1, replicas) for program in ("tandem", "traced") for replicas in (1, 2)]
    if "recurrent" in options.parts:
        runs += [Run(program, case, threads) for case in RECURRENT for threads in options.threads
                 for program in ("tandem", "traced", "pytorch")]
    if "start" in options.parts:
        runs += [Run(program, "mlp64") for program in programs]
        if (BUILD / "libtorch_mlp").exists():
            runs.append(Run("libtorch", "mlp64"))
    if "attention" in options.parts:
        runs += [Run(program, case, threads) for case in ATTENTION for threads in options.threads
                 for program in ("tandem", "pytorch")]
    return [run for run in dict.fromkeys(runs) if run.program != "bound" or (BUILD / "bound").exists()]


class StepResults:
    """The results of runs: {run: [result of each round]}."""

    def __init__(self, results):
        self.by_run = collections.defaultdict(list)
        for run, result in results:
            self.by_run[run].append(result)

    def median(self, run, field="ms"):
        values = [r[field] for r in self.by_run.get(run, []) if r.get(field) is not None]
        return statistics.median(values) if values else None

    def text(self, run):
        values = [r["ms"] for r in self.by_run.get(run, [])]
        if not values:
            return "-"
        return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"

    def bound(self, run):
        """The run that bounds this one."""
        return min(bounds_of(run), key=lambda bound: self.median(bound) or math.inf)


def print_steps(results, options):
    peers, rows, memory = peers_of(options), [], []
    for case in options.cases:
        for dtype in options.dtypes:
            for threads in options.threads:
                eager = Run("tandem", case, threads, dtype=dtype)
                traced, torch = eager._replace(program="traced"), eager._replace(program="pytorch")
                others = [eager._replace(program=peer) for peer in peers]
                bound = results.bound(eager)
                best = min((ms for ms in map(results.median, others) if ms), default=None)
                rows.append([case, dtype, threads, results.text(eager), results.text(traced),
                             results.text(bound), *map(results.text, others),
                             ratio(results.median(eager), results.median(bound)),
                             ratio(results.median(traced), results.median(bound)),
                             ratio(results.median(torch), results.median(eager)),
                             *(ratio(results.median(other), results.median(traced)) for other in others),
                             *([ratio(best, results.median(traced))] if len(others) > 1 else []),
                             ratio(results.median(traced, "peak_mib"), results.median(torch, "peak_mib"))])
            for run in (Run(program, case, options.threads[0], dtype=dtype) for program in ("tandem", "traced")):
                found = results.by_run.get(run)
                if found:
                    tags = found[-1]["memory_mib"]
                    memory.append([case, dtype, {"tandem": "eager"}.get(run.program, run.program),
                                   f"{tags['peak']:.1f}", *(f"{tags[tag]:.1f}" for tag in TAGS)])
    table("Training step, ms: median (least-most)",
          ["case", "dtype", "threads", "eager", "traced", "bound", *peers, "eager/bound", "traced/bound",
           "pytorch/eager", *(f"{peer}/traced" for peer in peers), *(["best peer/traced"] if len(peers) > 1 else []),
           "traced/pytorch memory"], rows)
    table("Memory of Tandem's step, MiB: the peak, and the peak of each purpose (not necessarily at the same time)",
          ["case", "dtype", "step", "peak", *TAGS], memory)


def print_attention(results, options):
    rows = []
    for case in ATTENTION:
        for threads in options.threads:
            ours, torch = Run("tandem", case, threads), Run("pytorch", case, threads)
            rows.append([case, threads, results.text(ours), results.text(torch),
                         ratio(results.median(torch), results.median(ours))])
    table("Attention, forward and backward (forward alone where it says so), ms: median (least-most)",
          ["batch x heads x positions x depth", "threads", "tandem", "pytorch", "pytorch/tandem"], rows)


def print_recurrent(results, options):
    rows = []
    for case in RECURRENT:
        for threads in options.threads:
            runs = [Run(program, case, threads) for program in ("tandem", "traced", "pytorch")]
            rows.append([case, threads, *map(results.text, runs),
                         *(ratio(results.median(runs[2]), results.median(run)) for run in runs[:2])])
    table("Training step of a recurrent layer of 256 units, 32 sequences of 128 steps, ms: median (least-most)",
          ["layer", "threads", "eager", "traced", "pytorch", "pytorch/eager", "pytorch/traced"], rows)


def print_replicas(results, options):
    rows = []
    for case in options.cases:
        for program, name in (("tandem", "eager"), ("traced", "traced")):
            one, two = Run(program, case), Run(program, case, replicas=2)
            rows.append([case, name, results.text(one), results.text(two),
                         ratio(results.median(one), results.median(two))])
    table("Two replicas of one thread, each with the case's batch, against one",
          ["case", "step", "1 replica, ms", "2 replicas, ms", "scaling efficiency"], rows)


def print_start(results, options):
    rows = []
    for program in ("tandem", "traced", "libtorch", *peers_of(options), "bound"):
        run = Run(program, "mlp64")
        if results.median(run):
            start = results.median(run, "startup_ms")
            rows.append([program, f"{start:.0f}" if start is not None else "-",
                         f"{results.median(run, 'peak_mib'):.0f}", results.text(run)])
    table("The program of mlp64, 1 thread", ["program", "start-up, ms", "peak memory, MiB", "step, ms"], rows)


def print_tables(results, options):
    results = StepResults(results)
    for part, prints in (("steps", print_steps), ("attention", print_attention), ("recurrent", print_recurrent),
                         ("replicas", print_replicas), ("start", print_start)):
        if part in options.parts:
            prints(results, options)
