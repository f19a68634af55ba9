#!/usr/bin/env python3
"""The form of a check of the lab: a short hash of all that says what the check does.

usage: lab_form.py [--commit COMMIT] ROOT CHECK

That is its function check_CHECK in tests/lab/run with the functions which that calls, and each
script of tests/lab, tests/system and scripts that these name, sourced or run, and what those name
in turn. Prints 12 hex digits of a sha256, or "-" if there is no such function. With --commit of the
tree of that commit, else of the files as they are.
"""

import argparse
import hashlib
import pathlib
import re
import subprocess
import sys

RUN = "tests/lab/run"
FOLDERS = ("tests/lab", "tests/system", "scripts")
# What the record itself changes, or nothing runs.
NO_SCRIPTS = (RUN, "tests/lab/passed", "tests/lab/README.md")
_FUNCTION = re.compile(r"^(\w+)\(\) \{.*?^\}", re.MULTILINE | re.DOTALL)
_LOOP_OF_TESTS = re.compile(r"tests/(?:lab/system_tests|system/\$\{\w+\}_test\.sh)")


class Files:
    """The scripts of a tree: {path: text}."""

    def __init__(self, root, commit=None):
        self.texts = {}
        if commit is None:
            for folder in FOLDERS:
                for path in sorted((root / folder).glob("*")):
                    if path.is_file():
                        self.texts[str(path.relative_to(root))] = path.read_text()
            return

        def git(*words):
            return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True,
                                  check=True).stdout

        folders = [f"{each}/" for each in FOLDERS]
        for path in git("ls-tree", "--name-only", commit, *folders).split():
            if git("cat-file", "-t", f"{commit}:{path}").strip() == "blob":
                self.texts[path] = git("show", f"{commit}:{path}")

    def named_in(self, text):
        """Paths of the scripts that a text names: behind a slash, or by a name that is no word of
        English. Loops name tests of tests/system by what comes before _test.sh."""
        text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        tests = set(re.findall(r"\w+", text)) if _LOOP_OF_TESTS.search(text) else ()
        for path in self.texts:
            name = path.rsplit("/", 1)[1]
            start = "/" if name.isalpha() else r"(?<![\w.-])"
            found = re.search(rf"{start}{re.escape(name)}(?![\w-]|\.\w)", text)
            if path not in NO_SCRIPTS and (found or name.removesuffix("_test.sh") in tests):
                yield path


def function_and_callees(script, name):
    """The text of a shell function and of the functions of the same script which it calls."""
    functions = {match[1]: match[0] for match in _FUNCTION.finditer(script)}
    wanted, found = [name], {}
    while wanted:
        if (each := wanted.pop()) in functions and each not in found:
            found[each] = functions[each]
            wanted += [other for other in functions if re.search(rf"\b{other}\b", found[each])]
    return "\n".join(found[each] for each in sorted(found))


def form_of(files, check):
    start = function_and_callees(files.texts.get(RUN, ""), f"check_{check}")
    if not start:
        return "-"
    wanted, found = list(files.named_in(start)), set()
    while wanted:
        if (path := wanted.pop()) not in found:
            found.add(path)
            wanted += files.named_in(files.texts[path])
    digest = hashlib.sha256(start.encode())
    for path in sorted(found):
        digest.update(f"\0{path}\0{files.texts[path]}".encode())
    return digest.hexdigest()[:12]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--commit")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("check")
    words = parser.parse_args()
    print(form_of(Files(words.root, words.commit), words.check))
    return 0


if __name__ == "__main__":
    sys.exit(main())
