#!/usr/bin/env python3
"""tests/results.py tells of each test what became of it, whichever process it ran in."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results.py"
SUITES = """<testsuite>
<testcase name="layer:A/Good" status="run"/>
<testcase name="layer:Bad:2of3" status="fail"><failure/><system-out>[  FAILED  ] Bad.breaks
</system-out></testcase>
<testcase name="layer:Crashed" status="fail"><failure/><system-out>SEGV</system-out></testcase>
<testcase name="layer:Leaks" status="fail"><failure/>
<system-out>LeakSanitizer</system-out></testcase>
<testcase name="other:Single.test/0  # GetParam() = 300-byte object LONG" status="run"/>
</testsuite>""".replace("LONG", "<00-00 ".replace("<", "&lt;") * 60)
TOLD = {
    "layer.A.Good.1.xml": """<testsuites><testsuite name="A/Good">
<testcase name="holds/x" status="run" result="completed" time="1" classname="A/Good"/>
<testcase name="skips/x" status="run" result="skipped" time="0" classname="A/Good">
<skipped message="a.cc:1&#x0A;no device"><![CDATA[a.cc:1
no device
]]></skipped></testcase>
<testcase name="DISABLED_part/x" status="notrun" result="suppressed" classname="A/Good"/>
</testsuite></testsuites>""",
    "layer.Bad.2.xml": """<testsuites><testsuite name="Bad">
<testcase name="breaks" status="run" result="completed" time="1" classname="Bad">
<failure message="b.cc:1&#x0A;no"><![CDATA[b.cc:1
no]]></failure></testcase>
<testcase name="holds" status="run" result="completed" time="1" classname="Bad"/>
</testsuite></testsuites>""",
    "layer.Leaks.1.xml": """<testsuites><testsuite name="Leaks">
<testcase name="holds" status="run" result="completed" time="1" classname="Leaks"/>
</testsuite></testsuites>""",
}


class Results(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        for name, text in TOLD.items():
            (self.path / name).write_text(text)
        self.results = self.path / "results.xml"

    def tearDown(self):
        self.folder.cleanup()

    def single(self, text):
        self.results.write_text(text)
        self.tell("single", self.path)

    def tell(self, verb, *words):
        return subprocess.run([sys.executable, "-B", RESULTS, verb, self.results, *words],
                              capture_output=True, text=True, check=False, timeout=60).stdout

    def test_counts_the_tests_of_suites(self):
        self.single(SUITES)
        self.assertEqual(self.tell("sum").strip(), "4 passed, 3 failed, 1 skipped")

    def test_tells_why_one_of_a_suite_was_skipped(self):
        self.single(SUITES)
        self.assertEqual(self.tell("skipped").strip(),
                         "NOT TESTED HERE (1): no device: layer:A/Good.skips/x")

    def test_a_suite_that_crashed_or_in_which_a_sanitizer_spoke_fails_for_good(self):
        self.single(SUITES)
        self.assertEqual(self.tell("again").splitlines(), [
            "layer:Crashed crashed, or did not end in time",
            'layer:Leaks says "Sanitizer"'])

    def test_a_failed_expectation_in_a_suite_may_run_again(self):
        text = SUITES.splitlines()
        self.single("\n".join(text[:4] + text[-1:]))
        self.assertEqual(self.tell("again").strip(), "")
        self.assertEqual(self.tell("sum").strip(), "2 passed, 1 failed, 1 skipped")

    def test_proven_by_the_second_run_is_only_what_failed_and_then_passed(self):
        self.single(SUITES)
        again = self.path / "again.xml"
        again.write_text("""<testsuite><testcase name="layer:Bad.breaks" status="run"/>
<testcase name="layer:Crashed" status="notrun"><skipped/></testcase>
<testcase name="layer:A.other" status="notrun"><skipped/></testcase></testsuite>""")
        self.assertEqual(self.tell("unproven", again).split(), ["layer:Crashed", "layer:Leaks"])


if __name__ == "__main__":
    unittest.main()
