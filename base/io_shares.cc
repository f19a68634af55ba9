#include "base/io_shares.h"

namespace braid::base {
namespace {

constexpr unsigned kShareOfFree = 8;  // the part of the free places that one file may have: 1/8

}  // namespace

void IoShares::add(IoOp& op) {
  op.file->share.waiting.push_back(op);
  turn(op.file->share);
}

void IoShares::add_first(IoOp& op) {
  op.file->share.waiting.push_front(op);
  turn(op.file->share);
}

void IoShares::turn(FileShare& file) {
  BRAID_ASSERT(file.of == nullptr || file.of == this);
  file.of = this;
  if (!file.linked()) turns_.push_back(file);
}

IoOp* IoShares::next() {
  while (FileShare* const file = turns_.pop_front()) {
    const unsigned free = places_ - in_kernel_;
    if (free == 0 || file->in_kernel * kShareOfFree >= free) {
      parked_.push_back(*file);
      continue;
    }
    IoOp* const op = file->waiting.pop_front();
    if (!file->waiting.empty()) turns_.push_back(*file);
    ++file->in_kernel;
    ++in_kernel_;
    return op;
  }
  return nullptr;
}

void IoShares::ended(IoOp& op) {
  --op.file->share.in_kernel;
  --in_kernel_;
  turns_.take_all(parked_);
}

void IoShares::clear() {
  turns_.take_all(parked_);
  while (FileShare* const file = turns_.pop_front()) file->waiting.clear();
}

}  // namespace braid::base
