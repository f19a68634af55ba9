#!/usr/bin/env python3
"""mutants.py BUG FROM TO: writes a source with one bug planted, for the explorer to find."""

import pathlib
import sys

BUGS = {
    # Checks one value, uses another.
    "double_fetch": (
        "    arrival.payload = {slot.payload, length};\n",
        "    arrival.payload = {slot.payload, slot.length.load(std::memory_order_relaxed)};\n",
    ),
    # The second arming looks like the first, which was signalled already.
    "same_generation": (
        "(armed_ & ~kArmModeMask) + (kArmModeMask + 1) +",
        "(kArmModeMask + 1) +",
    ),
    # A look that comes late takes the only signal of an arming for what was taken before.
    "late_signal": (
        "  if (view_.head().credit.drained_slots.load(std::memory_order_acquire) == tail_) "
        "return false;\n",
        "",
    ),
    # The sender may see the receive before its length.
    "post_before_length": (
        "  view_.length_at(posted_).store(word, std::memory_order_relaxed);\n",
        "  view_.head().credit.posted.store(posted_ + 1, std::memory_order_release);\n"
        "  view_.length_at(posted_).store(word, std::memory_order_relaxed);\n",
    ),
    # The owner may see nobody at work, and the initiator an open gate.
    "gate_first": (
        "  ring.begin_copy(rkey);\n  const Gate gate = ring.gate();\n",
        "  const Gate gate = ring.gate();\n  ring.begin_copy(rkey);\n",
    ),
    # What is taken back may still look good to who begins behind the fence.
    "fence_first": (
        "  take_back();\n  heavy_fence();\n",
        "  heavy_fence();\n  take_back();\n",
    ),
    # Who began before the fence is seen by it, but no more by a look before.
    "look_first": (
        "  heavy_fence();\n  return look();\n",
        "  auto seen = look();\n  heavy_fence();\n  return seen;\n",
    ),
    # A scribbled table leads out of the mapping.
    "offset_unchecked": (
        "  if (request.length > mapped_bytes - offset) return std::nullopt;\n",
        "",
    ),
    # Another addition comes between the look at the word and the claim.
    "read_before_claim": (
        "  const Execution claimed = word.claim();\n"
        "  if (claimed.outcome != Outcome::kDone) return claimed;\n"
        "  const Execution read = word.read(before);\n",
        "  const Execution read = word.read(before);\n"
        "  const Execution claimed = word.claim();\n"
        "  if (claimed.outcome != Outcome::kDone) return claimed;\n",
    ),
    # A copy that begins between the two is seen by nobody, and finds the key.
    "key_after_fence": (
        "  const uint32_t fenced = table.remove(view.key);\n"
        "  const bool remote = (view.access & kRemoteAccessFlags) != 0;\n"
        "  return remote ? wire.fence_peers(fenced) : wire.fence_local(fenced);\n",
        "  auto fence = wire.fence_peers(view.key);\n"
        "  table.remove(view.key);\n"
        "  return fence;\n",
    ),
    # The owner looks before its peer can have seen that the key is gone.
    "window_unfenced": (
        "  full_fence();\n  return copies.under_way(key);\n",
        "  return copies.under_way(key);\n",
    ),
    # The peer looks whether the key is there before the owner can have seen that it is at work.
    "window_initiator_unfenced": (
        "    full_fence();  // behind begin_copy(); pairs with that of fence_window()\n",
        "",
    ),
    # What was read ahead of the fence counts.
    "window_not_looked_at_again": (
        "    full_fence();  // behind begin_copy(); pairs with that of fence_window()\n"
        "    if (!read_mr(entry, request.rkey, mr)) return IBV_WC_REM_ACCESS_ERR;\n",
        "    full_fence();\n",
    ),
    # A copy that outlives its connection counts for nothing.
    "link_forgets": (
        "  if (found->last == 0) entries_.erase(found);\n",
        "  entries_.erase(found);\n",
    ),
    # Nobody can tell that an entry is being written.
    "torn_entry": (
        "  entry.generation.store(generation - 1, std::memory_order_relaxed);\n",
        "",
    ),
}


def main(bug, source, target):
    right, wrong = BUGS[bug]
    text = pathlib.Path(source).read_text()
    if text.count(right) != 1:
        sys.exit(f"{source}: the place of the bug {bug} is not there once; plant it anew")
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(target).write_text(text.replace(right, wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
