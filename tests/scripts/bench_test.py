"""scripts/bench: which runs a measurement has, and how operations are compared and reported. Nothing is measured."""

import contextlib
import io
import pathlib
import sys
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))

from bench_parts import operations, steps  # noqa: E402


def case(**changed):
    inputs = [{"shape": [2], "values": "signed", "layout": "plain", "limit": 0, "gradient": True, "wide": False}]
    return {"case": "add", "torch": "a + a", "backward": True, "random": False, "dtypes": True,
            "sizes": {size: {"shape": [2], "inputs": inputs} for size in operations.SIZES}, **changed}


def pair(ours, theirs):
    """A Pair whose programs give these answers."""
    made = operations.Pair.__new__(operations.Pair)
    made.tandem = types.SimpleNamespace(ask=lambda line: ours)
    made.torch = types.SimpleNamespace(ask=lambda line: theirs)
    return made


def cell(name, ns, pytorch_ns):
    return {"part": "operations", "case": name, "size": "small", "shape": [2], "dtype": "float32", "pass": "forward",
            "threads": 1, "ns": ns, "pytorch_ns": pytorch_ns}


class Operations(unittest.TestCase):
    def test_accepts_equal_results(self):
        sums = {"sums": [[1.0, 4.0], [0.5, 2.0]]}
        self.assertIsNone(pair(sums, sums).check(case()))
        rounded = {"sums": [[1.0 + 1e-6, 4.0], [0.5, 2.0]]}
        self.assertIsNone(pair(sums, rounded).check(case()))

    def test_names_results_that_differ(self):
        sums = {"sums": [[1.0, 4.0], [0.5, 2.0]]}
        self.assertIn("the result", pair(sums, {"sums": [[1.01, 4.0], [0.5, 2.0]]}).check(case()))
        self.assertIn("gradient 1", pair(sums, {"sums": [[1.0, 4.0], [0.5, 2.1]]}).check(case()))
        self.assertIn("PyTorch has 1", pair(sums, {"sums": [[1.0, 4.0]]}).check(case()))

    def test_does_not_compare_random_results(self):
        self.assertIsNone(pair({"sums": [[1.0, 4.0]]}, {"sums": [[2.0, 4.0]]}).check(case(random=True)))

    def test_reports_what_pytorch_lacks(self):
        self.assertEqual(pair({}, {"error": "AttributeError: none"}).check(case()), "AttributeError: none")
        self.assertEqual(pair({"ns": 1}, {"error": "no"}).measure(case(), "small", "float32", "forward", 1), "no")

    def test_backward_passes_need_a_gradient(self):
        self.assertEqual(operations.passes_of(case()), ["forward", "backward"])
        self.assertEqual(operations.passes_of(case(backward=False)), ["forward"])

    def test_the_worst_cell_comes_first(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            operations.print_operations(
                [cell("fast", [100, 100], [400, 400]), cell("slow", [400, 100, 400], [100, 100, 100])],
                types.SimpleNamespace(worst=1))
        lines = output.getvalue().splitlines()
        self.assertEqual([line.split()[0] for line in lines if line.startswith(("fast", "slow"))], ["slow"])
        self.assertEqual(next(line.split() for line in lines if line.startswith("all")), ["all", "2", "1.00", "1"])


class Steps(unittest.TestCase):
    def options(self, **changed):
        return types.SimpleNamespace(**{"cases": ["mlp64"], "dtypes": ["float32", "bfloat16"], "threads": [1, 2],
                                        "parts": ["steps"], "compiled": True, "tensorflow": "python", **changed})

    def test_every_program_runs_every_dtype(self):
        runs = steps.runs_of_a_round(self.options())
        for program in ("tandem", "traced", "pytorch", "compiled", "tensorflow", "xla"):
            found = {(run.dtype, run.threads) for run in runs if run.program == program}
            self.assertEqual(found, {(dtype, n) for dtype in ("float32", "bfloat16") for n in (1, 2)}, program)
        self.assertEqual(len(runs), len(set(runs)))

    def test_peers_are_optional(self):
        runs = steps.runs_of_a_round(self.options(compiled=False, tensorflow=None))
        self.assertLessEqual({run.program for run in runs}, {"tandem", "traced", "bound", "pytorch"})

    def test_the_bound_is_the_faster_dtype(self):
        run = steps.Run("traced", "mlp64", dtype="bfloat16")
        narrow = run._replace(program="bound")
        wide = narrow._replace(dtype="float32")
        for flags, ms, expected in ((["amx_bf16"], 7.0, wide), (["amx_bf16"], 1.0, narrow), (["avx512f"], None, wide)):
            with unittest.mock.patch.object(steps, "cpu_flags", lambda: flags):
                results = [(wide, {"ms": 2.0}), *([(narrow, {"ms": ms})] if ms else [])]
                self.assertEqual(steps.StepResults(results).bound(run), expected)
                self.assertEqual(set(steps.bounds_of(run)), {run for run, _ in results})


if __name__ == "__main__":
    unittest.main()
