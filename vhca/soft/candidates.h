// Candidates: who has connected to a listener and has not sent its request yet.
//
// Anybody can leave such connections behind, and an honest peer says at once what it wants. So they
// are few, those of one origin (an address, a process) are fewer, and it is never the newcomer who
// goes: of one origin its oldest, of all the oldest of those who have most.
//
// Threads: the listener's reactor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace braid::vhca::soft {

/// The rest waits in the kernel's backlog for the next turn.
inline constexpr int kAcceptsPerTurn = 32;

/// `Candidate` has a member `origin`, constant and ordered, and a `self`, which is the list's:
/// std::list<std::unique_ptr<Candidate>>::iterator.
template <typename Candidate>
class Candidates {
 public:
  struct Bounds {
    size_t all = 0;
    size_t of_one_origin = 0;
  };
  using Origin = std::remove_cv_t<decltype(Candidate::origin)>;

  explicit Candidates(Bounds bounds) : bounds_(bounds) {
    BRAID_ASSERT(bounds.all > 0 && bounds.of_one_origin > 0);
  }

  /// Lets one go if there would be too many with one more of this origin. Before that one is made:
  /// each costs a descriptor.
  void make_room(const Origin& origin) {
    const auto known = counts_.find(origin);
    if (known != counts_.end() && known->second >= bounds_.of_one_origin) {
      (void)take(oldest([&](const Candidate& each) { return each.origin == origin; }));
    } else if (all_.size() >= bounds_.all) {
      size_t most = 0;
      for (const auto& each : counts_) most = std::max(most, each.second);
      (void)take(oldest([&](const Candidate& each) { return counts_[each.origin] == most; }));
    }
  }
  void add(std::unique_ptr<Candidate> candidate) {
    ++counts_[candidate->origin];
    all_.push_back(std::move(candidate));
    all_.back()->self = std::prev(all_.end());
  }
  /// It is no candidate any more: it has said what it wants, or goes.
  std::unique_ptr<Candidate> take(Candidate& candidate) {
    const auto count = counts_.find(candidate.origin);
    BRAID_ASSERT(count != counts_.end() && candidate.self->get() == &candidate);
    if (--count->second == 0) counts_.erase(count);
    std::unique_ptr<Candidate> taken = std::move(*candidate.self);
    all_.erase(taken->self);
    return taken;
  }

 private:
  template <typename Predicate>
  Candidate& oldest(Predicate predicate) {
    const auto at =
        std::find_if(all_.begin(), all_.end(), [&](const auto& each) { return predicate(*each); });
    BRAID_ASSERT(at != all_.end());
    return **at;
  }

  const Bounds bounds_;
  std::list<std::unique_ptr<Candidate>> all_;  // the oldest first
  std::map<Origin, size_t> counts_;
};

}  // namespace braid::vhca::soft
