#include "vhca/soft/inhost/fence.h"

#include <algorithm>

namespace braid::vhca::soft::inhost {
namespace {

class CopyFence final : public PeerFence {
 public:
  struct Copy {
    std::shared_ptr<const PeerCopies> copies;
    uint64_t number;
  };
  explicit CopyFence(std::vector<Copy> waits) : waits_(std::move(waits)) {}

  bool passed() override {
    // Not at the first: most copies end within a few looks, and cost no question.
    const bool asks = ++looks_ % kLooksOfAQuestion == 0;
    std::erase_if(waits_, [asks](const Copy& copy) {
      return asks ? copy.copies->ended(copy.number) : copy.copies->moved_on(copy.number);
    });
    return waits_.empty();
  }
  std::string waits_for() const override {
    std::string text;
    for (const Copy& copy : waits_) {
      text += fmt::format("{}process {}", text.empty() ? "" : ", ",
                          copy.copies->peer()->identity().pid);
    }
    return text;
  }

 private:
  std::vector<Copy> waits_;
  unsigned looks_ = 0;
};

}  // namespace

std::unique_ptr<PeerFence> fence_copy(std::shared_ptr<const PeerCopies> copies, uint64_t copy) {
  return std::make_unique<CopyFence>(
      std::vector<CopyFence::Copy>{{.copies = std::move(copies), .number = copy}});
}

void CopyTable::add(std::shared_ptr<const PeerCopies> copies) {
  const std::lock_guard lock(mutex_);
  forget_ended_locked();
  entries_.push_back({.copies = std::move(copies)});
}

void CopyTable::remove(const PeerCopies& copies) {
  const std::lock_guard lock(mutex_);
  forget_ended_locked();
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&copies](const Entry& each) {
    return each.copies.get() == &copies;
  });
  found->last = copies.under_way(kAnyKey);
  if (found->last == 0) entries_.erase(found);
}

void CopyTable::forget_ended_locked() {
  std::erase_if(entries_,
                [](const Entry& each) { return each.last != 0 && each.copies->ended(each.last); });
}

std::unique_ptr<PeerFence> CopyTable::fence(uint32_t key) {
  std::vector<CopyFence::Copy> waits;
  {
    const std::lock_guard lock(mutex_);
    forget_ended_locked();
    for (const Entry& each : entries_) {
      const uint64_t copy = each.copies->under_way(key);
      if (copy != 0) waits.push_back({.copies = each.copies, .number = copy});
    }
  }
  if (waits.empty()) return nullptr;
  return std::make_unique<CopyFence>(std::move(waits));
}

}  // namespace braid::vhca::soft::inhost
