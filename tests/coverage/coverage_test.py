#!/usr/bin/env python3
"""coverage.py finds what it is there for."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

import coverage
import lab_form

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

    def test_refuses_a_fuzz_target_that_is_in_no_row(self):
        for target, result in (("canary", 0), ("request", 1)):
            self.write(f"tests/fuzz/{target}_fuzz.cc", "")
            self.assertEqual(self.run_it("--write"), result, target)

    def test_finds_what_ctest_calls_otherwise_than_its_file(self):
        names = ("sim:replay_test", "explore:rings", "system:away_test", "fuzz:address")
        cases = "".join(f'<testcase name="{name}" status="run"/>' for name in names)
        ran = self.write("r.xml", f"<testsuite>{cases}</testsuite>")
        self.assertLessEqual({"tests/sim/replay_test.sh", "tests/explore/table_scenarios.cc",
                              "tests/system/away_test.sh", "tests/fuzz/address_fuzz.cc"},
                             coverage.tests_that("run", [ran]))

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
        self.write("tests/lab/passed", "demo 0123456789abcdef 2026-01-02 -\n")
        self.assertEqual(self.run_it("--write"), 0)
        self.assertIn("`tests/lab/demo` (passed at 012345678 on 2026-01-02)",
                      (self.root / "docs/coverage.md").read_text())

    def test_tells_that_a_script_of_the_lab_has_changed_since_it_passed(self):
        scripts = {
            "tests/lab/run": 'in_vm() {\n  tests/lab/vm-run "$@"\n}\n'
                             "check_demo() {\n  in_vm -- tests/lab/demo\n}\n"
                             "check_other() {\n  tests/lab/other\n}\n",
            "tests/lab/demo": 'source "$here/device.sh"\n# not other.sh\n',
            "tests/lab/device.sh": "start-up\nsource tests/system/lib.sh\n",
            "tests/lab/vm-run": "", "tests/lab/start-up": "", "tests/system/lib.sh": "",
            "tests/lab/other": "", "tests/lab/other.sh": "", "tests/system/demo_test.sh": ""}
        for name, text in scripts.items():
            self.write(name, text)
        form = lab_form.form_of(lab_form.Files(self.root), "demo")
        self.assertRegex(form, "^[0-9a-f]{12}$")
        self.write("tests/lab/passed", f"demo 0123456789abcdef 2026-01-02 {form}\n")
        self.write("tests/coverage/features.toml", FEATURES.replace("Suite.*", "tests/lab/demo"))
        changed = set()
        for name, text in scripts.items():
            more = text.replace("in_vm --", "in_vm -v --") if name.endswith("run") else ""
            self.write(name, more or f"{text}true\n")
            if "script has changed since" in coverage.lab_record(self.root)["tests/lab/demo"]:
                changed.add(name)
            self.write(name, text)
        self.assertEqual(changed, {"tests/lab/run", "tests/lab/demo", "tests/lab/device.sh",
                                   "tests/lab/vm-run", "tests/lab/start-up",
                                   "tests/system/lib.sh"})
        self.assertEqual(self.run_it("--write"), 0)
        self.write("tests/lab/device.sh", "")
        self.assertEqual(self.run_it(), 1, "the page is stale")
        self.assertEqual(self.run_it("--write"), 0)
        self.assertIn("on 2026-01-02, its script has changed since)",
                      (self.root / "docs/coverage.md").read_text())

    def git(self, *words):
        return subprocess.run(["git", "-C", str(self.root), "-c", "user.name=a", "-c",
                               "user.email=a@b", *words], check=True, capture_output=True,
                              text=True).stdout.strip()

    def commit_of(self, name):
        self.write(name, f"{name}\n")
        self.git("add", ".")
        self.git("commit", "-qm", name)
        return self.git("rev-parse", "HEAD")

    def told_of_demo(self, root, commit):
        """What a run prints of a check that passed at the commit."""
        self.write("tests/lab/passed", f"demo {commit} 2026-01-02 -\n")
        (root / "tests/lab").mkdir(parents=True, exist_ok=True)
        (root / "tests/lab/passed").write_text((self.root / "tests/lab/passed").read_text())
        ran = self.write("r.xml", '<testsuite><testcase name="layer:Suite.does_it" status="run"/>'
                                  '</testsuite>')
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            self.assertEqual(coverage.run(["--ran", str(ran), str(root)]), 0)
        return next(line.partition("2026-01-02")[2] for line in said.getvalue().splitlines()
                    if line.startswith("shown by the lab: tests/lab/demo"))

    def test_tells_how_many_commits_of_the_product_have_come_since_the_lab_where_it_knows(self):
        self.assertEqual(self.told_of_demo(self.root, "0123456789abcdef"), "", "no clone")
        self.git("init", "-q")
        first = self.commit_of("trs/a.cc")
        self.assertEqual(self.told_of_demo(self.root, first), ", no product commits since")
        self.commit_of("docs/a.md")
        self.assertEqual(self.told_of_demo(self.root, first), ", no product commits since")
        self.commit_of("cli/a.cc")
        self.assertEqual(self.told_of_demo(self.root, first), ", 1 product commit since")
        last = self.commit_of("base/a.h")
        self.assertEqual(self.told_of_demo(self.root, first), ", 2 product commits since")
        self.assertEqual(self.told_of_demo(self.root, "0123456789abcdef"), "", "unknown here")
        self.git("checkout", "-q", "--force", "-b", "other", first)
        self.assertEqual(self.told_of_demo(self.root, last), "", "not of this history")
        self.git("checkout", "-q", "--force", "-B", "other", last)
        with tempfile.TemporaryDirectory() as folder:
            shallow = pathlib.Path(folder) / "clone"
            self.git("clone", "-q", "--depth", "2", f"file://{self.root}", str(shallow))
            self.assertEqual(self.told_of_demo(shallow, last), "", "a part of the history")

    def test_the_page_does_not_change_with_each_commit(self):
        self.write("tests/lab/demo", "#!/bin/sh")
        self.write("tests/coverage/features.toml", FEATURES.replace("Suite.*", "tests/lab/demo"))
        self.git("init", "-q")
        self.write("tests/lab/passed", f"demo {self.commit_of('trs/a.cc')} 2026-01-02 -\n")
        self.assertEqual(self.run_it("--write"), 0)
        self.commit_of("trs/b.cc")
        self.assertEqual(self.run_it(), 0)

    def test_tells_the_form_that_a_check_had_at_a_commit(self):
        self.write("tests/lab/run", "check_demo() {\n  tests/lab/demo\n}\n")
        self.write("tests/lab/demo", "true\n")
        before = lab_form.form_of(lab_form.Files(self.root), "demo")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-qm", "all")
        self.write("tests/lab/demo", "false\n")
        self.assertNotEqual(lab_form.form_of(lab_form.Files(self.root), "demo"), before)
        self.assertEqual(lab_form.form_of(lab_form.Files(self.root, "HEAD"), "demo"), before)
        self.assertEqual(lab_form.form_of(lab_form.Files(self.root, "HEAD"), "other"), "-")

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
