// One operation of any length as a sequence of requests that a BlockDevice takes.
//
// The kernel's FUSE and NBD clients know one or two limits of a device; a BlockDevice has more
// (largest discard, largest write-zeroes, largest transfer). A DeviceOp submits piece after piece,
// each once the one before is done, and ends with the first error or with the last piece.
//
// Threads: the device's reactor. Ownership: the caller's, untouched until `done`. Memory: none
// allocated.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "bnbd/block.h"

namespace braid::bnbd {

struct DeviceOp {
  BlockOp op = BlockOp::kRead;
  bool force_unit_access = false;
  bool no_unmap = false;
  bool may_lend = false;
  uint64_t offset_bytes = 0;
  uint64_t length_bytes = 0;
  BufferRef buffer;  // read, write: all of length_bytes
  /// Flush: of the moment at which its user asked for it, if that was before start().
  FlushNote flush_note;
  /// Its user hears of its end after `done`: who started it says when, by told(). It may be started
  /// again meanwhile for what follows.
  bool told_later = false;
  /// Runs once; it may run inside start(), and may start the same DeviceOp again.
  void (*done)(DeviceOp& operation, base::Errc status) = nullptr;
  void* context = nullptr;

  void start(BlockDevice& device);
  /// Of a `told_later` one; `heard` false: its user never will. On the device's reactor, before the
  /// device is destroyed.
  void told(bool heard = true) {
    if (request_.untold.any()) device_->note_told(request_.untold, heard);
  }
  /// After a read: where its bytes are. The device's own memory (`lent`) or `buffer`.
  std::byte* data() const { return lent_ != nullptr ? lent_ : buffer.address; }
  bool lent() const { return lent_ != nullptr; }

 private:
  static void piece_done(BlockRequest& request, base::Errc status);
  uint64_t piece_max() const;
  void submit_pieces();
  void finish(base::Errc status);

  BlockRequest request_;
  BlockDevice* device_ = nullptr;
  uint64_t done_bytes_ = 0;
  std::byte* lent_ = nullptr;
  bool submitting_ = false;   // inside submit_pieces()
  bool done_inside_ = false;  // the piece ended before submit() returned
  base::Errc status_ = base::Errc::kOk;
};

}  // namespace braid::bnbd
