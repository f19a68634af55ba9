#include "bnbd/frontend/device_op.h"

#include <algorithm>
#include <utility>

namespace braid::bnbd {

using base::Errc;

void DeviceOp::start(BlockDevice& device) {
  BRAID_ASSERT(!submitting_ && !request_.linked());
  device_ = &device;
  done_bytes_ = 0;
  lent_ = nullptr;
  status_ = Errc::kOk;
  request_.op = op;
  request_.force_unit_access = force_unit_access;
  request_.no_unmap = no_unmap;
  // Pieces lent from different places would not be one buffer.
  request_.may_lend = may_lend && op == BlockOp::kRead && length_bytes <= piece_max();
  request_.flush_note = std::exchange(flush_note, {});
  request_.done = &DeviceOp::piece_done;
  request_.context = this;
  submit_pieces();
}

/// The longest piece of this operation that the device takes; all of it where the device refuses in
/// any case, so that the refusal is the device's.
uint64_t DeviceOp::piece_max() const {
  const BlockInfo& info = device_->info();
  uint64_t max = info.max_io_bytes;
  if (op == BlockOp::kDiscard) max = info.max_discard_bytes;
  if (op == BlockOp::kWriteZeroes) max = info.max_write_zeroes_bytes;
  if (op == BlockOp::kSecureErase) max = info.max_secure_erase_bytes;
  max -= max % info.logical_block_bytes;
  return max == 0 || op == BlockOp::kFlush ? length_bytes : max;
}

void DeviceOp::submit_pieces() {
  submitting_ = true;
  do {
    request_.offset_bytes = op == BlockOp::kFlush ? 0 : offset_bytes + done_bytes_;
    request_.length_bytes = std::min(length_bytes - done_bytes_, piece_max());
    request_.buffer = buffer;
    if (buffer.address != nullptr) request_.buffer.address += done_bytes_;
    request_.lent = nullptr;
    request_.told_later = told_later || done_bytes_ + request_.length_bytes < length_bytes;
    done_inside_ = false;
    device_->submit(request_);
  } while (done_inside_ && status_ == Errc::kOk && done_bytes_ < length_bytes);
  submitting_ = false;
  if (done_inside_) finish(status_);
}

void DeviceOp::piece_done(BlockRequest& request, Errc status) {
  auto& self = *static_cast<DeviceOp*>(request.context);
  self.done_bytes_ += request.length_bytes;
  self.status_ = status;
  self.lent_ = status == Errc::kOk ? request.lent : nullptr;
  if (self.submitting_) {
    self.done_inside_ = true;  // the loop goes on: recursion would be as deep as there are pieces
  } else if (status == Errc::kOk && self.done_bytes_ < self.length_bytes) {
    self.submit_pieces();
  } else {
    self.finish(status);
  }
}

void DeviceOp::finish(Errc status) {
  if (!told_later) told();
  done(*this, status);
}

}  // namespace braid::bnbd
