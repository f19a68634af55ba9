#!/usr/bin/env python3
"""Code that also runs in simulation uses nothing that a seed does not decide.

That is all of the layers below cli, tests apart; REAL is where the operating system is wrapped.
Elsewhere: no headers of the operating system, no threads, clocks and random sources but Host's, no
thread_local, no container ordered by addresses and no hash of one, no walk over a hash table. That
there are no globals either is seen in what was compiled: globals.py.
"""

import re
import sys

import source

SIMULATED = {"base", "vhca", "trs", "bnbd", "rmr", "brmr"}
REAL = ("base/linux/", "base/linux_", "bnbd/frontend/", "vhca/ibv/", "vhca/shim/")

_HEADER = re.compile(
    r"^\s*#\s*include\s*<(?:unistd|fcntl|poll|pthread|signal|csignal|dlfcn|time|ctime|chrono|"
    r"thread|random|filesystem|fstream|iostream|sched|spawn|liburing.*|fuse.*|netdb|mqueue|"
    r"linux/.*|sys/(?!types\b|uio\b).*)(?:\.h)?>"
)
_CALL = re.compile(
    r"\b(?:clock_gettime|gettimeofday|getenv|random_device|s?rand(?:om)?_r|"
    r"(?:steady|system|high_resolution)_clock)\b|"
    # rand() and time(0) by any name; other classes may have members called so.
    r"(?:\bstd|(?<![\w.>:]))::(?:s?rand(?:om)?|time|clock|localtime|gmtime)\s*\(|"
    r"(?<![\w.>:])(?:s?rand\s*\(|time\s*\(\s*(?:nullptr|NULL|0|&\w+)\s*\))|"
    r"\bstd::(?:mt19937|minstd_rand|ranlux|knuth_b|default_random_engine|\w+_distribution)|"
    r"\bstd::(?:j?thread\b|this_thread::(?!yield)|async\b)"
)
_ADDRESS = r"(?:[\w:\s]+\*|(?:std::)?(?:shared|unique)_ptr<[^;{}]*>)"
_HASH_NAME = re.compile(r"\bunordered_(?:flat_)?(?:multi)?(?:map|set)<[^;(){}]*>\s+(\w+)\s*[;={]")


def simulated(path):
    name = path.as_posix()
    return (
        path.parts[0] in SIMULATED
        and not path.stem.endswith("_test")
        and not name.startswith(REAL)
    )


def hash_names(code):
    return set(_HASH_NAME.findall(code))


def problems_in(path, text, names):
    """`names`: what is a hash table in this file or in the header beside it."""
    code = source.code_only(text)
    walk = None
    if names:
        one = "|".join(sorted(names))
        walk = re.compile(rf"\bfor\s*\([^;()]*:\s*(?:this->|\*)?(?:{one})\)|\b(?:{one})\.begin\(\)")
    rules = [
        ("os", _HEADER, "the operating system is used through base::Host only"),
        ("os", _CALL, "time, chance and environment come from base::Host only"),
        ("thread_local", re.compile(r"\bthread_local\b"), "thread_local mixes simulated processes"),
        (
            "order",
            re.compile(
                rf"\bstd::(?:(?:multi)?(?:map|set)|priority_queue)<{_ADDRESS}\s*[,>]|"
                rf"\bstd::(?:less|greater|hash)<{_ADDRESS}\s*>"
            ),
            "addresses must not decide an order",
        ),
        ("order", walk, "a walk over a hash table has no defined order"),
    ]
    for i, line in enumerate(code.split("\n"), start=1):
        for rule, pattern, message in rules:
            if pattern and pattern.search(line) and not source.allowed(text, i, rule):
                yield f"{path}:{i}: {message}"


def problems(root):
    texts = {p: (root / p).read_text() for p in source.files(root, ".cc", ".h") if simulated(p)}
    names = {path: hash_names(source.code_only(text)) for path, text in texts.items()}
    found = []
    for path, text in texts.items():
        beside = names.get(path.with_suffix(".h"), set())
        found += problems_in(path, text, names[path] | beside)
    return found


if __name__ == "__main__":
    sys.exit(source.report(problems(source.root_argument()), "simulated code"))
