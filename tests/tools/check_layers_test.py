"""The layer check finds what it is for, and nothing else."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def check(files):
    """Exit code and output of the check on a tree of these files (path -> text)."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = subprocess.run(
            [sys.executable, ROOT / "tools/check_layers.py", folder], capture_output=True, text=True
        )
        return result.returncode, result.stdout


class CheckLayers(unittest.TestCase):
    def test_using_the_layers_above_is_fine(self):
        code, output = check(
            {
                "src/graph/a.cpp": '#include <vector>\n#include "graph/b.hpp"\n#include "os/c.hpp"\n'
                '#include "strata/tensor.hpp"\n#include "b.hpp"\n',
                "include/strata/tensor.hpp": '#include "strata/dtype.hpp"\n#include <atomic>\n',
            }
        )
        self.assertEqual((code, output), (0, ""))

    def test_using_a_layer_below_is_found(self):
        code, output = check({"src/base/a.hpp": '#pragma once\n#include "graph/b.hpp"\n'})
        self.assertEqual(code, 1)
        self.assertIn("src/base/a.hpp:2", output)

    def test_relative_and_angled_includes_do_not_hide_it(self):
        for include in ['"../graph/b.hpp"', "<graph/b.hpp>", '"./../graph/b.hpp"']:
            code, _ = check({"src/base/a.cpp": f"#  include {include}\n", "src/graph/b.hpp": ""})
            self.assertEqual(code, 1, include)

    def test_a_public_header_that_includes_a_private_one_is_found(self):
        for include in ['"graph/b.hpp"', '"../../src/graph/b.hpp"']:
            code, output = check({"include/strata/a.hpp": f"#include {include}\n"})
            self.assertEqual(code, 1, include)
            self.assertIn("include/strata/a.hpp:1", output)

    def test_a_folder_that_is_no_layer_is_found(self):
        code, _ = check({"src/misc/a.cpp": ""})
        self.assertEqual(code, 1)

    def test_this_repository_is_clean(self):
        result = subprocess.run([sys.executable, ROOT / "tools/check_layers.py"], check=False)
        self.assertEqual(result.returncode, 0)


if __name__ == "__main__":
    unittest.main()
