#include "vhca/soft/own_threads.h"

#include <algorithm>
#include <string>
#include <utility>

namespace braid::vhca::soft {
namespace {

/// Nobody is inside, and who was has been seen to leave.
bool is_free(SpinLock& lock) {
  if (!lock.try_lock()) return false;
  lock.unlock();
  return true;
}

}  // namespace

uint64_t OwnThreads::add(SpinLock& lock) {
  const std::lock_guard guard(mutex_);
  entries_.push_back({next_id_, &lock});
  return next_id_++;
}

void OwnThreads::remove(uint64_t id) {
  const std::lock_guard guard(mutex_);
  std::erase_if(entries_, [id](const Entry& each) { return each.id == id; });
}

/// The QPs that somebody was inside of.
class OwnThreads::Fence final : public PeerFence {
 public:
  Fence(std::shared_ptr<OwnThreads> threads, std::vector<Entry> busy)
      : threads_(std::move(threads)), busy_(std::move(busy)) {}

  bool passed() override {
    const std::lock_guard guard(threads_->mutex_);  // none of them goes meanwhile
    std::erase_if(busy_, [this](const Entry& each) {
      return !std::ranges::binary_search(threads_->entries_, each.id, {}, &Entry::id) ||
             is_free(*each.lock);
    });
    return busy_.empty();
  }
  std::string waits_for() const override { return "a thread of this process"; }

 private:
  const std::shared_ptr<OwnThreads> threads_;
  std::vector<Entry> busy_;
};

std::unique_ptr<PeerFence> OwnThreads::fence() {
  std::vector<Entry> busy;
  {
    const std::lock_guard guard(mutex_);
    for (const Entry& each : entries_) {
      if (!is_free(*each.lock)) busy.push_back(each);
    }
  }
  if (busy.empty()) return nullptr;
  return std::make_unique<Fence>(shared_from_this(), std::move(busy));
}

}  // namespace braid::vhca::soft
