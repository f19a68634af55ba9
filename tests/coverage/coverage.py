#!/usr/bin/env python3
"""docs/coverage.md: which feature works or is refused, and which tests show it.

usage: coverage.py [--write] ROOT [BUILD]
       coverage.py --ran RESULTS.xml... ROOT

Reads tests/coverage/features.toml. A row fails whose tests do not exist: their names are taken from
the sources, and with a BUILD folder also compared with what its test programs list. A row that
"works" by a check of the lab fails unless tests/lab/passed says when and at which commit the check
has passed, which the page tells, and whether its script is another one since (lab_form.py). Fails
too when docs/coverage.md is not what comes out; --write writes it.

With --ran it tells what the tests of one run have not shown: each test of a row that did not pass
in any instance, and each instance of a typed or parametrized suite of which no test passed. Fails
if one of a row that "works" was neither skipped, with its reason, nor passed. Of each check of the
lab it tells how many commits have changed the product since it passed, where the clone can tell;
the page does not, as each commit would make it stale.
"""

import fnmatch
import pathlib
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as tree

import lab_form

STATES = {"works": "works", "refused": "refused", "part": "in part", "not yet": "not yet"}
NEED_TESTS = ("works", "refused")
_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
# [Instance/]Suite[/type].test[/parameter]
_RAN = re.compile(r"(?:\w+/)?(?P<suite>[A-Za-z_]\w*)(?:/(?P<type>\w+))?\.(?P<test>\w+)"
                  r"(?:/(?P<parameter>.*))?$")
LAYERS = {"tests/sim": "sim"}  # whose programs are not named like their folder
SCRIPTS = ("tests/system/*_test.sh", "tests/sim/*_test.sh", "tests/fuzz/*_fuzz.cc",
           "tests/lab/[a-z]*", "tests/explore/*_scenarios.cc")
EXPLORED = ("atomic", "message", "table")
PRODUCT = ("base", "vhca", "trs", "bnbd", "reach", "capi", "cli")
CANARY = "tests/fuzz/canary_fuzz.cc"  # shows that fuzzing finds something, and no feature


def tests_of_sources(root):
    """{SUITE.TEST: path of its source}, and the paths of scripts and fuzz targets."""
    found = {}
    for path in sorted(root.rglob("*_test.cc")):
        relative = path.relative_to(root)
        if relative.parts[0] != "build":
            for suite, test in _TEST.findall(path.read_text()):
                found[f"{suite}.{test}"] = relative
    for pattern in SCRIPTS:
        for path in root.glob(pattern):
            found[str(path.relative_to(root))] = path.relative_to(root)
    return found


def program_of(source):
    folder = str(source.parent)
    for start, layer in LAYERS.items():
        if folder.startswith(start):
            return f"{layer}_test"
    return f"{source.parts[0]}_test"


def tests_of_program(program):
    """The tests that a program lists, without the instances of typed and parametrized suites."""
    listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True,
                             check=True, timeout=60).stdout
    names, suite = set(), ""
    for line in listing.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            names.add(f"{suite}.{word.split('/')[0]}")
        elif word.endswith("."):
            # Instance/Suite. or Suite/0. or Suite.
            parts = word[:-1].split("/")
            suite = parts[1] if len(parts) > 1 and not parts[1].isdigit() else parts[0]
    return names


def check_programs(build, wanted):
    """Complaints about wanted tests that the built programs do not have."""
    complaints = []
    programs = {}
    for name, source in sorted(wanted.items()):
        if "." not in name or "/" in name:
            continue
        program = build / program_of(source)
        if not program.exists():
            complaints.append(f"{source}: {program.name} is not built, so {name} is not there")
            continue
        if program not in programs:
            programs[program] = tests_of_program(program)
        if name not in programs[program]:
            complaints.append(f"{source}: {name} is no test of {program.name}")
    return complaints


def tests_of(pattern, tests):
    """A disabled test is one that another starts: it shows nothing by itself."""
    return [name for name in fnmatch.filter(sorted(tests), pattern) if "DISABLED_" not in name]


def cases_of(results):
    for file in results:
        yield from tree.parse(file).getroot().iter("testcase")


def tests_that(status, results):
    """{names as features.toml has them} of what has the status in any instance, in ctest's JUnit
    files: "run" has passed, "notrun" was skipped."""
    passed = set()
    for case in cases_of(results):
        if case.get("status") != status:
            continue
        layer, _, name = case.get("name").split("  # ")[0].partition(":")
        passed.add(f"{'tests/sim' if layer == 'sim' else 'tests/system'}/{name}.sh")
        passed.add(f"tests/fuzz/{name}_fuzz.cc")
        if layer == "explore" and name == "rings":  # all scenarios
            passed.update(f"tests/explore/{each}_scenarios.cc" for each in EXPLORED)
        if match := _RAN.match(name):
            passed.add(f"{match['suite']}.{match['test']}")
    return passed


def silent_instances(results):
    """SUITE/TYPE and SUITE of PARAMETER of which tests were there and none ran to its end."""
    there, passed = set(), set()
    for case in cases_of(results):
        match = _RAN.match(case.get("name").split("  # ")[0].partition(":")[2])
        if not match or (instance := match["type"] or match["parameter"]) is None:
            continue
        there.add((match["suite"], instance))
        if case.get("status") == "run":
            passed.add((match["suite"], instance))
    return sorted(f"{suite}/{instance}" for suite, instance in there - passed)


def product_commits_since(root, commit):
    """How many commits between the commit and HEAD change the product. None where that cannot be
    told: no clone, one without all of the history, or a commit that is none of HEAD's."""
    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True,
                              check=True, timeout=60).stdout.strip()
    try:
        if git("rev-parse", "--is-shallow-repository") != "false":
            return None
        git("merge-base", "--is-ancestor", commit, "HEAD")
        return int(git("rev-list", "--count", f"{commit}..HEAD", "--", *PRODUCT))
    except (OSError, subprocess.SubprocessError):
        return None


def words_on_commits(count):
    if count is None:
        return ""
    return f", {count or 'no'} product commit{'' if count == 1 else 's'} since"


def lab_record(root, since=lambda commit: ""):
    """{check: words on when it passed} from lines `CHECK COMMIT DATE FORM` of tests/lab/run, and
    what since(COMMIT) says."""
    file = root / "tests/lab/passed"
    if not file.exists():
        return {}
    record, files = {}, lab_form.Files(root)
    for line in file.read_text().splitlines():
        check, commit, date, form = line.split()
        changed = form != lab_form.form_of(files, check)
        record[f"tests/lab/{check}"] = (f"passed at {commit[:9]} on {date}"
                                        f"{', its script has changed since' if changed else ''}"
                                        f"{since(commit)}")
    return record


def not_shown(features, tests, passed):
    """The features that work or are refused, with what to say of their tests that did not pass (a
    pattern stands for all of its tests), and the names of these."""
    for group in features["group"]:
        for row in group["rows"]:
            if row["state"] not in NEED_TESTS:
                continue
            told, missing = [], []
            for pattern in row["tests"]:
                names = tests_of(pattern, tests)
                absent = [name for name in names if name not in passed]
                told += [pattern] if absent == names else absent
                missing += absent
            if told:
                yield row["feature"], told, missing


def table(features, tests, lab):
    """The page, the tests it names, and what is wrong with the rows."""
    lines = [
        "# Coverage",
        "",
        "Made by `tests/coverage/coverage.py --write .` from `tests/coverage/features.toml`; a "
        "test fails when it is stale, or when a row names a test that does not exist.",
        "`*` stands for any text. A check of the lab is told with the commit at which it "
        "passed as a whole, and whether its script has changed since; a row of which a part has "
        "only passed alone since is \"in part\". How many commits have changed the product since "
        "then `./run test` tells. Each fuzz target is in a row.",
    ]
    wanted, complaints = {}, []
    for group in features["group"]:
        lines += ["", f"## {group['title']}", ""]
        if "note" in group:
            lines += [group["note"], ""]
        lines += ["| feature | state | tests |", "|---|---|---|"]
        for row in group["rows"]:
            feature, state, texts = row["feature"], row["state"], []
            if state not in STATES:
                complaints.append(f"\"{feature}\": state \"{state}\": want {', '.join(STATES)}")
                continue
            if state in NEED_TESTS and not row.get("tests"):
                complaints.append(f'"{feature}" is said to be "{state}", and no test shows it')
            if state != "works" and not row.get("how"):
                complaints.append(f'"{feature}" is "{state}": say how, or what is missing')
            for pattern in row.get("tests", []):
                names = tests_of(pattern, tests)
                if not names:
                    complaints.append(f'"{feature}": no test is called {pattern}')
                wanted.update({name: tests[name] for name in names})
                when = ""
                if pattern.startswith("tests/lab/"):
                    when = f" ({lab.get(pattern, 'not yet passed as a whole')})"
                    if state in NEED_TESTS and pattern not in lab:
                        complaints.append(f'"{feature}" is said to be "{state}", and '
                                          f"tests/lab/passed does not tell of {pattern}")
                texts.append(f"`{pattern}`{when}")
            how = f": {row['how']}" if "how" in row else ""
            lines.append(f"| {feature} | {STATES[state]}{how} | {', '.join(texts)} |")
    complaints += [f"{name} is in no row" for name in sorted(tests)
                   if name.startswith("tests/fuzz/") and name not in wanted and name != CANARY]
    return "\n".join(lines) + "\n", wanted, complaints


def tell_of_run(results, features, tests, lab):
    passed, skipped = tests_that("run", results), tests_that("notrun", results)
    lost = set()
    for feature, told, missing in not_shown(features, tests, passed | set(lab)):
        print(f"NOT SHOWN HERE: {feature}: {', '.join(told)}")
        lost.update(name for name in missing if name not in skipped)
    for instance in silent_instances(results):
        print(f"NOT SHOWN HERE: no test of {instance} has passed")
    for check, when in sorted(lab.items()):
        print(f"shown by the lab: {check} {when}")
    for name in sorted(lost):
        print(f"FAILED: {name}, of a feature that works, has neither passed nor said why not")
    return 1 if lost else 0


def run(arguments):
    write = "--write" in arguments
    paths = [pathlib.Path(word) for word in arguments if not word.startswith("--")]
    ran = [paths.pop(0) for _ in paths[1:]] if "--ran" in arguments else []
    root, build = paths[0], paths[1] if len(paths) > 1 else None
    features = tomllib.loads((root / "tests/coverage/features.toml").read_text())
    if ran:
        lab = lab_record(root, lambda commit: words_on_commits(product_commits_since(root, commit)))
        return tell_of_run(ran, features, tests_of_sources(root), lab)
    lab = lab_record(root)
    page, wanted, complaints = table(features, tests_of_sources(root), lab)
    if build is not None:
        complaints += check_programs(build, wanted)
    target = root / "docs/coverage.md"
    if write and not complaints:
        target.write_text(page)
    elif not target.exists() or target.read_text() != page:
        complaints.append("docs/coverage.md is stale: run tests/coverage/coverage.py --write .")
    for complaint in complaints:
        print(complaint)
    print(f"coverage: {len(complaints) or 'no'} problems, {len(wanted)} tests")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
