// IoShares: which file operations are in the kernel (or at a simulated disk), and which wait.
//
// Hung disks must not take all places. A file takes another place only while it has fewer than an
// eighth of those that are free, or none: one that never answers ends with a ninth of all, the next
// one with a ninth of the rest. Files that wait take turns; those of one file keep their order.
//
// One thread: the IoQueue's. Nothing allocates.
#pragma once

#include "base/host.h"

namespace braid::base {

/// How many file operations of one reactor are under way at once.
inline constexpr unsigned kFilePlaces = 1024;

class IoShares {
 public:
  explicit IoShares(unsigned places) : places_(places) {}
  IoShares(const IoShares&) = delete;
  IoShares& operator=(const IoShares&) = delete;

  /// Waits behind / before those of its file.
  void add(IoOp& op);
  void add_first(IoOp& op);
  /// The operation that goes now, with a place; null if none may.
  IoOp* next();
  /// Gives the place back.
  void ended(IoOp& op);
  unsigned in_kernel() const { return in_kernel_; }
  /// Forgets all that waits.
  void clear();

 private:
  void turn(FileShare& file);

  const unsigned places_;
  unsigned in_kernel_ = 0;
  // Files with operations that wait are in one of these.
  IntrusiveList<FileShare> turns_;   // in this order
  IntrusiveList<FileShare> parked_;  // have all that they may, until an operation ends
};

}  // namespace braid::base
