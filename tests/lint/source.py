"""What the checks share: files of the tree, C++ text without comments and strings, reporting."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = {"build", "third_party", "__pycache__"}


def kind(path):
    """The suffix that says what is in a file: its own, or .sh for a script without one."""
    if path.name == "CMakeLists.txt":
        return ".cmake"
    if path.suffix:
        return path.suffix
    with open(path, "rb") as file:
        first = file.readline()
    return ".sh" if first.startswith(b"#!") and first.rstrip().endswith(b"sh") else ""


def files(root, *kinds):
    """All files below root of the given kinds, as paths relative to root, in a fixed order; of any
    kind where none is given."""
    found = []
    stack = [pathlib.Path(root)]
    while stack:
        for path in stack.pop().iterdir():
            if path.name.startswith(".") or path.name in SKIPPED:
                continue
            if path.is_dir() and not path.is_symlink():
                stack.append(path)
            elif path.is_file() and (not kinds or kind(path) in kinds):
                found.append(path.relative_to(root))
    return sorted(found)


_UNITY = re.compile(r'#include "(.*)"')


def sources_of(entry):
    """The files that an entry of compile_commands.json compiles, absolute: several where CMake has
    made one file that includes them (cmake/BraidUnity.cmake)."""
    path = (pathlib.Path(entry["directory"]) / entry["file"]).resolve()
    if path.parent.name != "Unity":
        return [path]
    return [pathlib.Path(name).resolve() for name in _UNITY.findall(path.read_text())]


_NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|"""
    r"""(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)


def code_only(text):
    """The text with comments and the content of strings blanked; offsets stay as they are."""

    def blank(match):
        whole = match.group(0)
        if whole.startswith("/"):
            return re.sub(r"[^\n]", " ", whole)
        quote = "'" if whole.startswith("'") else '"'
        return quote + re.sub(r"[^\n]", "_", whole[1:-1]) + quote

    return _NOT_CODE.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def allowed(text, line, rule):
    """A line may break a rule for a reason that stands beside it: `// lint: allow(rule) reason`."""
    found = re.search(rf"lint: allow\({rule}\) \S", text.split("\n")[line - 1])
    return found is not None


def report(problems, what):
    """Prints the problems and gives the exit code."""
    for problem in problems:
        print(problem)
    print(f"{what}: {len(problems) or 'no'} problem{'' if len(problems) == 1 else 's'}")
    return 1 if problems else 0


def root_argument():
    return pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
