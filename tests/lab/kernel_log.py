#!/usr/bin/env python3
"""What a virtual machine's kernel has said: all that it warns of must be known, with the reason.

    kernel_log.py < LOG        LOG: of `dmesg`, from the first line on

Each complaint is printed, from its first line to the end of its trace. One that no line of ALLOWED
takes, or a log whose beginning is lost, ends it with status 1.
"""

import re
import sys

# What begins a complaint.
COMPLAINS = re.compile(
    r"\b(WARNING|BUG|UBSAN|KASAN|KFENCE):|\bOops\b|Call Trace|[Kk]ernel panic|"
    r"general protection fault|[Uu]nable to handle|refcount_t:|(list_add|list_del) corruption|"
    r"blocked for more than|detected (expedited )?stalls|self-detected stall|lockup|"
    r"page allocation failure|Out of memory|possible circular locking|Bad page state")
CUT_HERE = re.compile(r"-+\[ cut here \]-+")
END_OF_TRACE = re.compile(r"---\[ end trace")
# What can follow within one complaint: lines of a trace are indented, or name registers.
TRACE = re.compile(r"^(\[[^]]*\])? (\s|\?|<|R[A-Z0-9]{2}:|[CDE][A-Z0-9]{1,3}:|CPU:|Code:|Hardware|"
                   r"Workqueue:|Modules|Tainted|FS:|PKRU:|task:|Call Trace|---\[|\"echo 0)")
MOST_LINES = 120

# (what a complaint says, why it is no fault of ours). A pattern is looked for in the whole
# complaint: as narrow as can be.
ALLOWED = [
    (r"(?s)WARNING: .* at mm/page_alloc\.c:\d+ __alloc_pages.*rtrs_srv_rdma_cm_handler.*"
     r"cma_ib_req_handler",
     "Linux's RTRS server asks for one piece of memory larger than the kernel has any, as "
     "kernel_capture lets it, and rejects its client"),
]


def complaints(lines):
    """[lines] of each."""
    found, here, cut = [], None, False
    for line in lines:
        if CUT_HERE.search(line):
            here, cut = [line], True
            found.append(here)
            continue
        if here is not None and len(here) < MOST_LINES and (cut or TRACE.match(line)):
            here.append(line)
            if END_OF_TRACE.search(line):
                here, cut = None, False
            continue
        here, cut = None, False
        if COMPLAINS.search(line):
            here = [line]
            found.append(here)
    return found


def judge(text, allowed):
    """Printed lines, and whether all is well."""
    lines = text.splitlines()
    said, well = [], True
    if not lines or "Linux version" not in lines[0]:
        said.append("the kernel's log has lost its beginning: enlarge log_buf_len")
        well = False
    for complaint in complaints(lines):
        whole = "\n".join(complaint)
        reason = next((why for pattern, why in allowed if re.search(pattern, whole)), None)
        if reason is None:
            said.append(f"COMPLAINT OF THE KERNEL:\n{whole}")
            well = False
        else:
            said.append(f"known complaint of the kernel: {reason}\n    {complaint[0]}")
    return said, well


def main():
    said, well = judge(sys.stdin.read(), ALLOWED)
    print("\n".join(said or ["the kernel complained of nothing"]))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
