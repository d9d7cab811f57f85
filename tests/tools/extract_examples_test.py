"""Examples are taken out of pages whole, and a broken page is an error that says where."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools/extract_examples.py"


class ExtractExamples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = Path(folder.name) / "page.md"
        self.output = Path(folder.name) / "out"

    def extract(self, text):
        self.page.write_text(text)
        return subprocess.run(
            [sys.executable, TOOL, self.output, self.page], capture_output=True, text=True
        )

    def test_takes_marked_blocks_only(self):
        result = self.extract(
            "```cpp\nnot this\n```\n<!-- example: one -->\n```cpp\nint a;\n\nint b;\n```\ntext\n"
        )
        self.assertEqual((result.returncode, result.stdout), (0, "one\n"))
        self.assertEqual(
            (self.output / "one.cpp").read_text(), f'#line 6 "{self.page}"\nint a;\n\nint b;\n'
        )

    def test_an_example_that_is_gone_leaves_no_file(self):
        self.extract("<!-- example: one -->\n```cpp\n```\n")
        self.extract("<!-- example: two -->\n```cpp\n```\n")
        self.assertEqual([p.name for p in self.output.rglob("*.cpp")], ["two.cpp"])

    def test_libraries_have_a_folder_of_their_own(self):
        result = self.extract(
            "<!-- library: one -->\n```cpp\nint a;\n```\n<!-- example: one -->\n```cpp\nint b;\n```\n"
        )
        self.assertEqual((result.returncode, result.stdout), (0, "library/one\none\n"))
        self.assertIn("int a;", (self.output / "library/one.cpp").read_text())
        self.assertIn("int b;", (self.output / "one.cpp").read_text())
        self.extract("text\n")
        self.assertEqual(list(self.output.rglob("*.cpp")), [])

    def test_files_have_the_names_that_the_page_gives_them(self):
        result = self.extract(
            '<!-- file: add/program.json -->\n```json\n{"name": "add"}\n```\n'
            "<!-- file: add/kernels/add.cpp -->\n```cpp\nint a;\n```\n"
        )
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        self.assertEqual(
            (self.output / "bin/add/program.json").read_text(), '{"name": "add"}\n'
        )
        self.assertEqual(
            (self.output / "bin/add/kernels/add.cpp").read_text(),
            f'#line 7 "{self.page}"\nint a;\n',
        )
        (self.output / "bin/built").write_text("by others")
        self.extract("text\n")
        self.assertEqual([p.name for p in self.output.glob("bin/**/*") if p.is_file()], ["built"])

    def test_broken_pages_are_errors(self):
        for text in [
            "<!-- file: name.json -->\n```json\n```\n",
            "<!-- file: ../name.json -->\n```json\n```\n",
            "<!-- file: a/name.json -->\ntext\n",
            "<!-- example: one -->\n\n```cpp\n```\n",
            "<!-- example: one -->\n```cpp\nint a;\n",
            "<!-- example: no/name -->\n```cpp\n```\n",
            "<!-- example: one -->\n```cpp\n```\n" * 2,
        ]:
            result = self.extract(text)
            self.assertEqual(result.returncode, 1, text)
            self.assertIn("page.md", result.stderr)


if __name__ == "__main__":
    unittest.main()
