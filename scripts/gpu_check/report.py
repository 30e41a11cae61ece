"""Prints the tables of one run or of several."""

import json
import pathlib

from gpu_check.benchmarks import PROGRAMS


def table(header, rows):
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())


def number(value, format_):
    return format(value, format_) if isinstance(value, (int, float)) else "-"


def ratio(a, b, format_=".2f"):
    return format(a / b, format_) if a and b else "-"


def print_tests(name, counts):
    print(f"{name}: " + ", ".join(f"{counts[key]} {key}" for key in ("passed", "failed", "skipped", "not run")))
    for line in [*counts["failures"][:40], *counts.get("notes", [])]:
        print(f"  {line}")


def print_benchmarks(found, ceilings):
    rows, losses = [], []
    for case, by_dtype in found["rows"].items():
        for dtype, row in by_dtype.items():
            ms = {name: row.get(name, {}).get("ms") for name in PROGRAMS}
            memory = {name: row.get(name, {}).get("device_peak_mib") for name in ("traced", "pytorch")}
            work, reached = row.get("pytorch", {}), ceilings.get(dtype, {})
            ceiling = {key: max((results[key] for results in reached.values()), default=None)
                       for key in ("flops", "bytes")}
            share = {key: work[key] / ms["traced"] * 1e3 if work.get(key) and ms["traced"] else None for key in ceiling}
            rows.append([case, dtype, *(number(ms[name], ".3f") for name in PROGRAMS), ratio(ms["pytorch"], ms["eager"]),
                         ratio(ms["pytorch"], ms["traced"]), ratio(ms["compiled"], ms["traced"]),
                         ratio(ms["compiled"], ms["tuned"]),
                         ratio(share["flops"], ceiling["flops"], ".0%"), ratio(share["bytes"], ceiling["bytes"], ".0%"),
                         ratio(memory["traced"], memory["pytorch"])])
            first = next((results["losses"] for results in row.values() if results["losses"]), [None])[0]
            parameters = {results["parameters"] for results in row.values()}
            losses.append([case, dtype, "/".join(map(str, sorted(parameters))), number(first, ".4f"),
                           *(number((row.get(name, {}).get("losses") or [None])[-1], ".4f") for name in PROGRAMS)])
    if rows:
        print()
        table(["ms per step", "", *PROGRAMS, "pytorch/eager", "pytorch/traced", "compiled/traced", "compiled/tuned",
               "of matmul", "of memory", "peak/pytorch"], rows)
        print()
        table(["loss", "", "parameters", "first", *PROGRAMS], losses)
    notes = [f"{case} {dtype}: {line}" for case, by_dtype in found["rows"].items() for dtype, row in by_dtype.items()
            for line in row.get("traced", {}).get("notes", [])]
    for line in [*notes, *found["wrong"], *(f"left out: {name}" for name in found["left out"])]:
        print(line)


def print_ceilings(ceilings):
    rows = [[dtype, name, f"{results['flops'] / 1e12:.1f}", f"{results['bytes'] / 1e9:.0f}",
             f"{results['chain_bytes'] / 1e9:.0f}"]
            for dtype, programs in ceilings.items() for name, results in programs.items()]
    if rows:
        print()
        table(["ceilings", "", "TFLOP/s", "GB/s", "chain GB/s"], rows)


def print_report(report):
    print(f"\nTandem {report['commit']}, {report['date']}")
    machine = report.get("machine", {})
    for line in [*machine.get("gpus", []), *([f"PyTorch: {machine['pytorch']}"] if "pytorch" in machine else [])]:
        print(f"  {line}")
    for name in ("conformance", "operations"):
        if "passed" in report.get(name, {}):
            print_tests(name, report[name])
    sanitized = report.get("sanitizer", {})
    for name in ("memcheck", "racecheck"):
        if name in sanitized:
            print_tests(name, sanitized[name])
    for name, outcome in sanitized.get("trainings", {}).items():
        print(f"  {name}: {outcome}")
    for name, outcome in report.get("programs", {}).items():
        print(f"{name}: {outcome}")
    if "accuracy" in report.get("training", {}):
        print(f"LeNet on MNIST: {report['training']['accuracy']}, above {report['training']['wanted']} wanted")
    for name, results in report.items():
        if isinstance(results, dict) and "outcome" in results and name not in ("programs", "training"):
            print(f"{name}: {results['outcome']}")
    # A part that failed half-way has partial results.
    parts = {name: report.get(name, {}) for name in ("ceilings", "benchmarks")}
    ceilings = {dtype: found for dtype, found in parts["ceilings"].items() if dtype != "outcome"}
    print_ceilings(ceilings)
    if "rows" in parts["benchmarks"]:
        print_benchmarks(parts["benchmarks"], ceilings)
    if report.get("left out"):
        print(f"left out for lack of time: {', '.join(report['left out'])}")


def merged(files):
    """Merges the reports of several runs of one commit. A part comes from the last report that has it."""
    report, commands, left_out = {}, [], []
    for file in files:
        one = json.loads(pathlib.Path(file).read_text())
        commands.append(one.pop("command"))
        left_out += one.pop("left out", [])
        seconds = {**report.get("seconds", {}), **one.get("seconds", {})}
        report = {**report, **one, "date": report.get("date", one["date"]), "seconds": seconds}
    return {**report, "commands": commands, "left out": [name for name in left_out if name not in report]}
