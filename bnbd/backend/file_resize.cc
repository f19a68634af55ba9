// A file device changes its size (docs/bnbd.md, "Size").
#include <algorithm>

#include "bnbd/backend/file_device.h"

namespace braid::bnbd {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

constexpr uint64_t kLookNs = base::kMillisecond;  // between two looks at what goes beyond the end
constexpr uint64_t kPatienceNs = 10 * base::kSecond;

/// What a worker brings back.
struct SizeSet {
  Status status;
  bool done = false;  // also if it could not be made durable
};
struct SizeRead {
  Result<uint64_t> size = uint64_t{0};
};

}  // namespace

Status FileDevice::check_size(uint64_t size_bytes) const {
  const uint64_t block = info_.logical_block_bytes;
  if (info_.read_only) {
    return make_error(Errc::kReadOnly, "'{}' may only be read at the server", name_);
  }
  if (size_bytes == 0 || size_bytes % block != 0 || size_bytes > INT64_MAX) {
    return make_error(Errc::kInvalid,
                      "'{}' cannot have {} bytes: want a multiple of its blocks of {}", name_,
                      size_bytes, block);
  }
  if (resizing_) return make_error(Errc::kBusy, "'{}' is being given another size", name_);
  return {};
}

bool FileDevice::works_beyond(uint64_t size_bytes) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.request != nullptr &&
           slot.request->offset_bytes + slot.request->length_bytes > size_bytes;
  });
}

/// While it is open whether the device ends before the request does.
bool FileDevice::hold_beyond(BlockRequest& request) {
  if (request.offset_bytes + request.length_bytes <= cut_bytes_) return false;
  beyond_.push_back(request);
  return true;
}

void FileDevice::judge_beyond() {
  cut_bytes_ = UINT64_MAX;
  base::IntrusiveList<BlockRequest> held;
  held.take_all(beyond_);
  while (BlockRequest* const request = held.pop_front()) submit(*request);
}

/// A write that landed after the cut would make the file longer again, with a hole before it.
base::Task<Status> FileDevice::end_beyond(uint64_t size_bytes) {
  for (const uint64_t began_ns = reactor_.now_ns(); works_beyond(size_bytes);) {
    if (reactor_.now_ns() - began_ns > kPatienceNs) {
      co_return make_error(
          Errc::kTimedOut,
          "'{}' cannot shrink to {} bytes: requests beyond that have not come back "
          "from the disk for {} s",
          name_, size_bytes, kPatienceNs / base::kSecond);
    }
    co_await reactor_.sleep_ns(kLookNs);
  }
  co_return base::ok_status();
}

base::Task<Status> FileDevice::resize(uint64_t size_bytes) {
  BRAID_CO_CHECK(check_size(size_bytes));
  const uint64_t before = info_.size_bytes;
  if (size_bytes == before) co_return base::ok_status();
  resizing_ = true;
  cut_bytes_ = std::min(before, size_bytes);  // nothing goes beyond that from here on
  Status status = co_await end_beyond(cut_bytes_);
  if (status.ok()) {
    const auto set = std::make_shared<SizeSet>();
    std::function<void()> work = [set, file = file_, size_bytes] {
      set->status = file->set_size(size_bytes);
      set->done = set->status.ok();
      if (set->done) return;
      Result<uint64_t> now = file->current_size();
      set->done = now.ok() && *now == size_bytes;
    };
    co_await reactor_.offload(std::move(work));
    status = set->status;
    if (!status.ok()) status = status.error().with("'{}'", name_);
    if (set->done) {
      file_->adopt_size(size_bytes);
      info_.size_bytes = size_bytes;
    }
  }
  resizing_ = false;
  ++resizes_;
  judge_beyond();
  co_return status;
}

/// What was read beside a resize says nothing of the size behind it.
base::Task<Result<bool>> FileDevice::refresh_size() {
  if (resizing_) co_return false;
  const uint64_t resizes = resizes_;
  const auto read = std::make_shared<SizeRead>();
  std::function<void()> work = [read, file = file_] { read->size = file->current_size(); };
  co_await reactor_.offload(std::move(work));
  if (!read->size.ok()) co_return read->size.error();
  const uint64_t size_bytes = *read->size / info_.logical_block_bytes * info_.logical_block_bytes;
  if (resizing_ || resizes != resizes_ || size_bytes == info_.size_bytes) co_return false;
  file_->adopt_size(size_bytes);
  info_.size_bytes = size_bytes;
  co_return true;
}

}  // namespace braid::bnbd
