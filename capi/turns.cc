#include "capi/turns.h"

#include <sys/mman.h>

#include <new>
#include <thread>
#include <utility>

namespace braid::capi {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr int kKeeperTriesMax = 50;  // a user who sleeps in a call does not come out

}  // namespace

Turns::Turns() {
  void* const page =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (::madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
    ::munmap(page, kPageBytes);
    return;
  }
  word_ = new (page) std::atomic<uint64_t>(kFree);
}

Turns::~Turns() {
  if (word_ != nullptr) ::munmap(word_, kPageBytes);
}

Turns::Entry Turns::enter_slowly(uint64_t now) {
  for (;;) {
    switch (state(now)) {
      case kFree:
        if (word_->compare_exchange_strong(now, now + (kUser - kFree), std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
          return Entry::kIn;
        }
        break;
      case kKeeper:
        word_->wait(now, std::memory_order_relaxed);
        now = word_->load(std::memory_order_relaxed);
        break;
      case kUser:
        return Entry::kBusy;
      default:
        return Entry::kForked;
    }
  }
}

bool Turns::enter_unused(uint64_t& seen) {
  // Whoever is in may be one who comes again and again, and turns nothing: he is out in a moment.
  for (int tries = 0; tries < kKeeperTriesMax; ++tries) {
    uint64_t now = word_->load(std::memory_order_relaxed);
    if (now / kEntry != std::exchange(seen, now) / kEntry) return false;
    if (state(now) == kFree &&
        word_->compare_exchange_strong(now, now + (kKeeper - kFree), std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      return true;
    }
    std::this_thread::yield();  // lint: allow(os) the keeper has no reactor
  }
  return false;
}

void Turns::leave_unused() {
  const uint64_t now = word_->load(std::memory_order_relaxed);
  word_->store(now - (kKeeper - kFree), std::memory_order_release);
  word_->notify_all();
}

}  // namespace braid::capi
