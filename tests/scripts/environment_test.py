#!/usr/bin/env python3
"""docs/environment.md lists the environment variables that the code reads, and no others of Tandem's.

    environment_test.py SOURCE_FOLDER
"""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
PREFIXES = ("TANDEM_", "HOROVOD_", "TF_", "CUDA_", "GLOO_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "MASTER_", "TORCHELASTIC_")
NAME = re.compile(r'"((?:%s)[A-Za-z0-9_]+)"' % "|".join(PREFIXES))


def read_by_code():
    return {name for folder in ("src", "tools") for path in (SOURCE / folder).rglob("*")
            if path.suffix in (".cc", ".h", ".cu", ".cuh") for name in NAME.findall(path.read_text())}


class Environment(unittest.TestCase):
    def test_every_variable_is_listed(self):
        listed = set(re.findall(r"`([A-Z][A-Za-z0-9_]+)`", (SOURCE / "docs/environment.md").read_text()))
        code = read_by_code()
        self.assertIn("TANDEM_LOG_LEVEL", code)
        self.assertEqual(sorted(code - listed), [])
        self.assertEqual(sorted(name for name in listed - code if name.startswith(PREFIXES)), [])


if __name__ == "__main__":
    unittest.main()
