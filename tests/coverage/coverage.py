#!/usr/bin/env python3
"""docs/coverage.md: which feature works or is refused, and which tests show it.

usage: coverage.py [--write] ROOT [BUILD]
       coverage.py --ran RESULTS.xml ROOT

Reads tests/coverage/features.toml. A row fails whose tests do not exist: their names are taken from
the sources, and with a BUILD folder also compared with what its test programs list. Fails too when
docs/coverage.md is not what comes out; --write writes it.

With --ran it tells what the tests of one run have not shown: each test of a row that did not pass
in any instance, and each instance of a typed or parametrized suite of which no test passed. A check
of the lab counts that tests/lab/run has recorded as passed in ROOT/build/lab_passed, with the
commit that is checked out, unchanged.
"""

import fnmatch
import pathlib
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as tree

STATES = {"works": "works", "refused": "refused", "part": "in part", "not yet": "not yet"}
NEED_TESTS = ("works", "refused")
_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)
# [Instance/]Suite[/type].test[/parameter]
_RAN = re.compile(r"(?:\w+/)?(?P<suite>[A-Za-z_]\w*)(?:/(?P<type>\w+))?\.(?P<test>\w+)"
                  r"(?:/(?P<parameter>.*))?$")
LAYERS = {"tests/sim": "sim"}  # whose programs are not named like their folder


def tests_of_sources(root):
    """{SUITE.TEST: path of its source}, and the paths of scripts and fuzz targets."""
    found = {}
    for path in sorted(root.rglob("*_test.cc")):
        relative = path.relative_to(root)
        if relative.parts[0] != "build":
            for suite, test in _TEST.findall(path.read_text()):
                found[f"{suite}.{test}"] = relative
    for pattern in ("tests/system/*_test.sh", "tests/fuzz/*_fuzz.cc", "tests/lab/[a-z]*"):
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


def passed_tests(results):
    """{names as features.toml has them} of what ran to its end in ctest's JUnit file."""
    passed = set()
    for case in tree.parse(results).getroot().iter("testcase"):
        if case.get("status") != "run":
            continue
        layer, _, name = case.get("name").split("  # ")[0].partition(":")
        passed.add(f"tests/system/{name}.sh")
        passed.add(f"tests/fuzz/{name}_fuzz.cc")
        if match := _RAN.match(name):
            passed.add(f"{match['suite']}.{match['test']}")
    return passed


def silent_instances(results):
    """SUITE/TYPE and SUITE of PARAMETER of which tests were there and none ran to its end."""
    there, passed = set(), set()
    for case in tree.parse(results).getroot().iter("testcase"):
        match = _RAN.match(case.get("name").split("  # ")[0].partition(":")[2])
        if not match or (instance := match["type"] or match["parameter"]) is None:
            continue
        there.add((match["suite"], instance))
        if case.get("status") == "run":
            passed.add((match["suite"], instance))
    return sorted(f"{suite}/{instance}" for suite, instance in there - passed)


def passed_in_lab(record, commit):
    """Of lines `CHECK COMMIT` those of this commit; another one's say nothing of it."""
    lines = [line.split() for line in record.read_text().splitlines()] if record.exists() else []
    return {f"tests/lab/{words[0]}" for words in lines if len(words) == 2 and words[1] == commit}


def commit_of(root):
    """That which is checked out; `...-dirty` with changes, which no record names; else nothing."""
    told = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=40",
                           "--exclude=*"], capture_output=True, text=True, check=False, timeout=60)
    return told.stdout.strip()


def not_shown(features, tests, passed):
    """The features that work or are refused, with their tests that did not pass; a pattern stands
    for all of its tests."""
    for group in features["group"]:
        for row in group["rows"]:
            if row["state"] not in NEED_TESTS:
                continue
            missing = []
            for pattern in row["tests"]:
                names = tests_of(pattern, tests)
                absent = [name for name in names if name not in passed]
                missing += [pattern] if absent == names else absent
            if missing:
                yield row["feature"], missing


def table(features, tests):
    """The page, the tests it names, and what is wrong with the rows."""
    lines = [
        "# Coverage",
        "",
        "Made by `tests/coverage/coverage.py --write .` from `tests/coverage/features.toml`; a "
        "test fails when it is stale, or when a row names a test that does not exist.",
        "`*` stands for any text.",
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
                texts.append(f"`{pattern}`")
            how = f": {row['how']}" if "how" in row else ""
            lines.append(f"| {feature} | {STATES[state]}{how} | {', '.join(texts)} |")
    return "\n".join(lines) + "\n", wanted, complaints


def run(arguments):
    write = "--write" in arguments
    paths = [pathlib.Path(word) for word in arguments if not word.startswith("--")]
    ran = paths.pop(0) if "--ran" in arguments else None
    root, build = paths[0], paths[1] if len(paths) > 1 else None
    features = tomllib.loads((root / "tests/coverage/features.toml").read_text())
    if ran is not None:
        passed = passed_tests(ran) | passed_in_lab(root / "build/lab_passed", commit_of(root))
        for feature, missing in not_shown(features, tests_of_sources(root), passed):
            print(f"NOT SHOWN HERE: {feature}: {', '.join(missing)}")
        for instance in silent_instances(ran):
            print(f"NOT SHOWN HERE: no test of {instance} has passed")
        return 0
    page, wanted, complaints = table(features, tests_of_sources(root))
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
