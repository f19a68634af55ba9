#!/usr/bin/env python3
"""Whether standard input is Prometheus' text format 0.0.4, checked by the format's description and
by nothing of Braid: lines, names, escapes, numbers, families in one piece, series that are there
once, histograms whose buckets rise to their count, counters that end in _total.

exit code 0: it is; 1: what is wrong, a line each."""

import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|\Z)')
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\Z")
TYPES = ("counter", "gauge", "histogram")
wrong = []


def complain(number, line, why):
    wrong.append(f"line {number}: {why}: {line}")


def parse_labels(text):
    """The pairs of {a="b",...}; None: they are not well formed."""
    pairs, at = [], 0
    while at < len(text):
        label = LABEL.match(text, at)
        if not label or (label.group(3) == "," and label.end() == len(text)):
            return None
        pairs.append((label.group(1), label.group(2)))
        at = label.end()
    return pairs


class Family:
    def __init__(self, name):
        self.name, self.type, self.series, self.samples = name, None, set(), {}

    def base_of(self, name):
        ends = ("_bucket", "_sum", "_count") if self.type == "histogram" else ("",)
        return any(name == self.name + end for end in ends)

    def check_histograms(self, number):
        by_labels = {}
        for (name, labels), value in self.samples.items():
            rest = tuple(pair for pair in labels if pair[0] != "le")
            entry = by_labels.setdefault(rest, {"buckets": [], "_sum": None, "_count": None})
            if name.endswith("_bucket"):
                le = dict(labels).get("le")
                entry["buckets"].append((float(le) if le else None, value))
            else:
                entry[name[len(self.name) :]] = value
        for labels, entry in by_labels.items():
            bounds = [bound for bound, _ in entry["buckets"]]
            counts = [count for _, count in entry["buckets"]]
            good = (
                None not in bounds
                and bounds == sorted(set(bounds))
                and bounds[-1:] == [float("inf")]
                and counts == sorted(counts)
                and counts[-1] == entry["_count"]
                and entry["_sum"] is not None
            )
            if not good:
                complain(number, f"{self.name}{dict(labels)}", "a histogram that is not whole")


def check_line(number, line, family, names):
    """One line; the family that the next one belongs to."""
    if line.startswith("# HELP "):
        name = line.split(" ", 3)[2]
        if name in names or not NAME.match(name):
            complain(number, line, "a family that is there twice, or has no name")
        if len(line.split(" ", 3)) < 4:
            complain(number, line, "no help")
        if family and family.type == "histogram":
            family.check_histograms(number)
        names.add(name)
        return Family(name)
    if line.startswith("# TYPE "):
        words = line.split(" ")
        if not family or len(words) != 4 or words[2] != family.name or words[3] not in TYPES:
            complain(number, line, "no type of the family before")
        elif (words[3] == "counter") != family.name.endswith("_total"):
            complain(number, line, "counters, and no others, end in _total")
        else:
            family.type = words[3]
        return family
    sample = SAMPLE.match(line)
    labels = parse_labels(sample.group(2)[1:-1]) if sample and sample.group(2) else []
    if not sample or labels is None or len(dict(labels)) != len(labels):
        complain(number, line, "no sample")
    elif not family or not family.type or not family.base_of(sample.group(1)):
        complain(number, line, "a sample outside its family")
    elif not NUMBER.match(sample.group(3)):
        complain(number, line, "no number")
    else:
        series = (sample.group(1), tuple(labels))
        if series in family.samples:
            complain(number, line, "a series that is there twice")
        family.samples[series] = float(sample.group(3))
    return family


def main():
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        print(f"no UTF-8: {error}")
        return 1
    if not text.endswith("\n"):
        wrong.append("the last line has no end")
    family, names = None, set()
    for number, line in enumerate(text.split("\n")[:-1], 1):
        family = check_line(number, line, family, names)
    if family and family.type == "histogram":
        family.check_histograms("last")
    if not any(name for name in names):
        wrong.append("no family")
    print("\n".join(wrong[:20]), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
