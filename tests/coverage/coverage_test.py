#!/usr/bin/env python3
"""coverage.py finds what it is there for."""

import pathlib
import sys
import tempfile
import unittest

import coverage

FEATURES = """
[[group]]
title = "Group"
rows = [{feature = "thing", state = "works", tests = ["Suite.*"]}]
"""
SOURCE = "TEST(Suite, does_it) {\n}\nTYPED_TEST(Typed, DoesIt) {}\n"


class Tree(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("tests/coverage/features.toml", FEATURES)
        self.write("layer/a_test.cc", SOURCE)
        (self.root / "docs").mkdir()

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run_it(self, *words):
        return coverage.run([*words, str(self.root)])

    def test_writes_what_it_then_finds_fresh(self):
        self.assertEqual(self.run_it("--write"), 0)
        self.assertIn("| thing | works | `Suite.*` |",
                      (self.root / "docs/coverage.md").read_text())
        self.assertEqual(self.run_it(), 0)

    def test_refuses_a_stale_page(self):
        self.assertEqual(self.run_it("--write"), 0)
        self.write("tests/coverage/features.toml", FEATURES.replace("thing", "other thing"))
        self.assertEqual(self.run_it(), 1)

    def test_refuses_rows_without_tests(self):
        for row in ('{feature = "x", state = "works"}',
                    '{feature = "x", state = "works", tests = ["Suite.not_there"]}',
                    '{feature = "x", state = "refused", tests = ["Suite.*"]}',
                    '{feature = "x", state = "not yet"}',
                    '{feature = "x", state = "fine", tests = ["Suite.*"]}'):
            self.write("tests/coverage/features.toml",
                       f'[[group]]\ntitle = "g"\nrows = [{row}]\n')
            self.assertEqual(self.run_it("--write"), 1, row)

    def test_tells_what_a_run_has_not_shown(self):
        cases = '<testcase name="{}" status="{}"/>'
        for name, status, shown in (("layer:Suite.does_it", "run", True),
                                    ("layer:All/Suite.does_it/7  # GetParam() = 7", "run", True),
                                    ("layer:Suite/0.does_it", "run", True),
                                    ("layer:Suite.does_it", "notrun", False),
                                    ("layer:Suite.does_it", "fail", False),
                                    ("layer:Suite.does_it_not", "run", False)):
            ran = self.write("r.xml", f"<testsuite>{cases.format(name, status)}</testsuite>")
            features = coverage.tomllib.loads(FEATURES)
            tests = coverage.tests_of_sources(self.root)
            missing = list(coverage.not_shown(features, tests, coverage.tests_that("run", [ran])))
            self.assertEqual(missing, [] if shown else [("thing", ["Suite.*"], ["Suite.does_it"])],
                             (name, status))
            self.assertEqual(coverage.run(["--ran", str(ran), str(self.root)]),
                             0 if shown or status == "notrun" else 1, (name, status))

    def test_tells_each_test_of_a_pattern_and_each_instance(self):
        self.write("layer/a_test.cc", "TEST(Suite, does_it) {}\nTEST(Suite, does_more) {}\n")
        cases = "".join(f'<testcase name="layer:{name}" status="{status}"/>' for name, status in (
            ("Suite.does_it", "run"), ("Suite.does_more", "notrun"), ("Typed/0.DoesIt", "run"),
            ("Typed/1.DoesIt", "notrun"), ("All/Wires.does/tcp", "notrun")))
        ran = self.write("r.xml", f"<testsuite>{cases}</testsuite>")
        missing = list(coverage.not_shown(coverage.tomllib.loads(FEATURES),
                                          coverage.tests_of_sources(self.root),
                                          coverage.tests_that("run", [ran])))
        self.assertEqual(missing, [("thing", ["Suite.does_more"], ["Suite.does_more"])])
        self.assertEqual(coverage.silent_instances([ran]), ["Typed/1", "Wires/tcp"])

    def test_tells_when_the_lab_has_shown_it_and_refuses_what_it_has_not(self):
        self.write("tests/lab/demo", "#!/bin/sh")
        self.write("tests/coverage/features.toml", FEATURES.replace("Suite.*", "tests/lab/demo"))
        self.assertEqual(self.run_it("--write"), 1)
        self.write("tests/lab/passed", "demo 0123456789abcdef 2026-01-02\n")
        self.assertEqual(self.run_it("--write"), 0)
        self.assertIn("`tests/lab/demo` (passed at 012345678 on 2026-01-02)",
                      (self.root / "docs/coverage.md").read_text())

    def test_refuses_what_only_disabled_tests_show(self):
        self.write("layer/a_test.cc", "TEST(Suite, DISABLED_does_it) {}\n")
        self.assertEqual(self.run_it("--write"), 1)

    def test_refuses_a_test_that_its_program_does_not_have(self):
        self.assertEqual(self.run_it("--write"), 0)
        build = self.root / "build"
        program = self.write("build/layer_test",
                             "#!/bin/sh\nprintf 'Suite.\\n  other\\nTyped/0.\\n  DoesIt\\n'\n")
        program.chmod(0o755)
        self.assertEqual(coverage.run([str(self.root), str(build)]), 1)
        program.write_text("#!/bin/sh\nprintf 'All/Suite.\\n  does_it/tcp  # GetParam()\\n'\n")
        self.assertEqual(coverage.run([str(self.root), str(build)]), 0)


if __name__ == "__main__":
    sys.exit(unittest.main())
