#!/usr/bin/env python3
"""scripts/check-docs on small headers: a documented one passes, and each symbol without documentation is printed."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check-docs"
SKIPPED = 77

HEADER = """\
/// @file
/// Gradients.

/// A library.
namespace tandem {

namespace detail {
int hidden();
}

/// Options of f().
struct Options {
  int size = 0;  ///< number of rows
  Options() = default;
  Options(const Options&) = delete;

 private:
  int secret_ = 0;
};

/// A choice.
enum class Choice {
  kFirst,  ///< the first one
};

/// @{
/// Computes a value. See Options::size.
int f(int x);
int f(double x);
/// @}

}  // namespace tandem
"""


class CheckDocs(unittest.TestCase):
    def check(self, old="", new=""):
        self.assertIn(old, HEADER)
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder, "include/tandem/api.h")
            header.parent.mkdir(parents=True)
            header.write_text(HEADER.replace(old, new))
            return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)

    def assert_reports(self, old, new, expected):
        result = self.check(old, new)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(len(result.stdout.splitlines()), 1, result.stdout)
        self.assertIn(expected, result.stdout)

    def test_accepts_a_documented_header(self):
        result = self.check()
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))

    def test_reports_a_file(self):
        self.assert_reports("/// @file\n/// Gradients.", "// Gradients.", "include/tandem/api.h:1: file api.h is not")

    def test_reports_a_namespace(self):
        self.assert_reports("/// A library.", "// A library.", "namespace tandem is not documented")

    def test_reports_a_type(self):
        self.assert_reports("/// Options of f().", "// Options of f().",
                            "include/tandem/api.h:12: struct tandem::Options is not documented")

    def test_reports_a_member(self):
        self.assert_reports("  ///< number of rows", "", "variable tandem::Options::size is not documented")

    def test_reports_an_enum_value(self):
        self.assert_reports("  ///< the first one", "", "enum value tandem::Choice::kFirst is not documented")

    def test_reports_a_function(self):
        self.assert_reports("int f(double x);\n/// @}", "/// @}\nint f(double x);",
                            "function tandem::f(double x) is not documented")

    def test_reports_a_macro(self):
        self.assert_reports("/// A library.", "#define SIZE 3\n/// A library.", "define SIZE is not documented")

    def test_reports_a_warning_of_doxygen(self):
        self.assert_reports("Computes a value.", "Computes a @unknown value.", "unknown")


if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("doxygen is missing; scripts/setup --docs installs it")
        sys.exit(SKIPPED)
    unittest.main()
