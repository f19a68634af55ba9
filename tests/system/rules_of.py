#!/usr/bin/env python3
"""usage: rules_of.py MARKDOWN FOLDER: writes each block of code that begins with `# FILE.yml` into
FOLDER/FILE.yml, so that what the documents show is what is checked."""

import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S):
    name = re.match(r"# (\S+\.yml)", block)
    if name:
        pathlib.Path(sys.argv[2], name.group(1)).write_text(block, encoding="utf-8")
