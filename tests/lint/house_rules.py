#!/usr/bin/env python3
"""House rules that no other tool checks: lengths, leftovers of people and of tests, sleeping tests,
orphan files.

usage: house_rules.py [ROOT] [COMPILE_COMMANDS]: without the latter, it does not look for sources
that are not compiled. docs/checks.md tells how a line may break a rule.
"""

import json
import pathlib
import re
import sys

import source

LINES_MAX = 600
COLUMNS_MAX = 100
TODO_KINDS = ("perf", "correctness", "test", "doc")
CODE = (".cc", ".h")
SCRIPTS = (".py", ".sh", ".cmake")

_SLEEPS = {
    ".cc": r"\b(?:sleep_for|sleep_until|usleep|nanosleep)\b|\bsleep\s*\(|"
    r"\bpoll\s*\(\s*nullptr\b",
    ".py": r"\btime\.sleep\b",
    # Waiting for input that does not come, or for nothing at all, is a sleep too.
    ".sh": r"(?:^|[;&|({]|\bdo|\bthen|\belse)\s*(?:u?sleep\s|read\s+(?:-\w+\s+)*-\w*t)",
}
_SLEEPS[".h"] = _SLEEPS[".cc"]
# The words are put together so that these lines do not break the rules themselves.
_TODO = re.compile(r"\bTO" rf"DO\b(?!\((?:{'|'.join(TODO_KINDS)})\))")
_LEFTOVER = re.compile(r"\b(?:FIX" r"ME|XX" r"X|HA" r"CK)\b")


def _is_test(path):
    if path.parts[:2] == ("tests", "lab"):  # Tools that run and wait for virtual machines.
        return False
    helper = path.stem.startswith("test_")
    return path.parts[0] == "tests" or helper or path.stem.endswith("_test")


def _line_rules(path, kind):
    """(rule, pattern, message, in code only) for each rule that looks at one line at a time."""
    yield "width", rf"^.{{{COLUMNS_MAX + 1},}}$", None, False
    yield "space", r"[ \t]+$", "space at the end of the line", False
    if path.parts[:2] == ("tests", "lint"):  # Which is full of examples of what is wrong.
        return
    yield "todo", _TODO, f"a to-do has a kind: {', '.join(TODO_KINDS)}", False
    yield "leftover", _LEFTOVER, "a leftover mark", False
    if kind in CODE:
        yield "tab", r"\t", "a tab", False
        macro = r"\bif \(.*\) (?:EXPECT|ASSERT)_\w+\("
        yield "if_macro", macro, "an if before a macro with an else; g++ wants braces", True
    if kind == ".h":
        yield "using", r"^\s*using\s+namespace\b", "using namespace in a header", True
    if kind == ".sh":
        # The writer may die of SIGPIPE, and pipefail then takes a match for none.
        yield "early_end", r"\|\s*grep\s+-\w*q", "a pipe whose reader ends early; use <<<", False
    if _is_test(path) and kind in _SLEEPS:
        yield "sleep", _SLEEPS[kind], "a test that sleeps", True


def _problems_in(path, kind, text):
    lines = text.split("\n")
    code = source.code_only(text).split("\n") if kind in CODE else lines
    if len(lines) - 1 > LINES_MAX:
        yield f"{path}:1: {len(lines) - 1} lines; at most {LINES_MAX}"
    if text and not text.endswith("\n"):
        yield f"{path}:{len(lines)}: no end of line at the end"
    if kind == ".h" and "#pragma once" not in lines:
        yield f"{path}:1: no #pragma once"
    for rule, pattern, message, in_code in _line_rules(path, kind):
        for i, line in enumerate(code if in_code else lines):
            if re.search(pattern, line) and not source.allowed(text, i + 1, rule):
                yield f"{path}:{i + 1}: {message or f'{len(line)} columns; at most {COLUMNS_MAX}'}"


def _orphans(root, texts, compiled):
    included = set()
    for text in texts.values():
        included.update(re.findall(r'#[ \t]*include[ \t]*"([^"]+)"', text))
    for path, text in texts.items():
        if path.suffix == ".cc" and compiled is not None and root / path not in compiled:
            yield f"{path}:1: not compiled into anything"
        # A public header of a library may have no user in the tree; it says so.
        if path.suffix == ".h" and str(path) not in included and "lint: allow(orphan)" not in text:
            yield f"{path}:1: not included anywhere"


def _binaries(root):
    """What a test left in the tree, or was put there by mistake."""
    for path in source.files(root):
        if "corpus" in path.parts:  # of a fuzz target
            continue
        with open(root / path, "rb") as file:
            if b"\0" in file.read(65536):
                yield f"{path}:1: not text; only the corpora of fuzz targets are not"


def problems(root, compiled=None):
    """`compiled`: absolute paths of all compiled sources, or None to leave that check out."""
    found, texts = [], {}
    for path in source.files(root, *CODE, *SCRIPTS):
        text = (root / path).read_text()
        if path.suffix in CODE:
            texts[path] = text
        found += _problems_in(path, source.kind(root / path), text)
    return found + list(_orphans(root, texts, compiled)) + list(_binaries(root))


def main():
    root = source.root_argument()
    compiled = None
    if len(sys.argv) > 2:
        entries = json.loads(pathlib.Path(sys.argv[2]).read_text())
        compiled = {path for entry in entries for path in source.sources_of(entry)}
    return source.report(problems(root, compiled), "house rules")


if __name__ == "__main__":
    sys.exit(main())
