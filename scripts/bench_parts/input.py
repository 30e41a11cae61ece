"""Input pipelines against PyTorch's DataLoader and tf.data: examples per second."""

import collections
import os
import pathlib
import tempfile

from bench_parts.common import BUILD, ROOT, Program, best_torch_environment, ratio, table

PIPELINES = ["digits batch", "digits shuffle batch", "digits shuffle map batch", "digits shuffle map batch prefetch",
             "digits shuffle map2 batch prefetch", "digits shuffle batch map", "digits shuffle batch map prefetch",
             "large shuffle batch", "large shuffle batch prefetch", "large shuffle map batch prefetch",
             "large shuffle map2 batch prefetch", "large heavy map2 batch prefetch", "scalars shuffle batch",
             "scalars map batch", "files shuffle map batch prefetch", "files shuffle map2 batch prefetch"]
RECORDS, RECORD = 10_000, 3073  # of a file in CIFAR-10's format


def peers_of(options):
    return ["pytorch", *(["tensorflow"] if options.tensorflow else [])]


def measure_input(options):
    peers = ROOT / "benchmarks/peers"
    with tempfile.TemporaryDirectory() as folder:
        for i in (1, 2):
            records = bytearray(os.urandom(RECORDS * RECORD))
            records[::RECORD] = bytes(label % 10 for label in range(RECORDS))
            (pathlib.Path(folder) / f"data_batch_{i}.bin").write_bytes(records)
        for threads in options.threads:
            words = ["--threads", threads, "--files", folder]
            programs = {"tandem": Program([BUILD / "input", *words], {}),
                        "pytorch": Program([options.python, peers / "torch_input.py", *words],
                                           best_torch_environment(threads))}
            if options.tensorflow:
                programs["tensorflow"] = Program([options.tensorflow, peers / "tf_input.py", *words], {})
            for turn in range(options.rounds):
                for pipeline in PIPELINES:
                    # Filling a buffer from files takes long: a whole pass.
                    seconds = options.seconds / 4 * (4 if pipeline.startswith("files") else 1)
                    for name, program in programs.items():
                        yield {"program": name, "part": "input", "case": pipeline, "threads": threads, "round": turn,
                               "per_s": program.ask(f"{seconds} {pipeline}")["per_s"]}
            for program in programs.values():
                program.end()


def print_input(records, options):
    best = collections.defaultdict(float)
    for record in records:
        if record.get("part") == "input":
            key = (record["case"], record["threads"], record["program"])
            best[key] = max(best[key], record["per_s"])
    rows = []
    for case, threads in dict.fromkeys(key[:2] for key in best):
        ours, others = best[case, threads, "tandem"], [best[case, threads, peer] for peer in peers_of(options)]
        rows.append([case, threads, *(f"{each:.3g}" for each in (ours, *others)), ratio(ours, max(others))])
    table("Input pipelines, examples per second, most of the rounds",
          ["pipeline", "threads", "tandem", *peers_of(options), "Tandem/best peer"], rows)
