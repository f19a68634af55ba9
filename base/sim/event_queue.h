// EventQueue: what will happen in a simulated world, by time, ties in the order of insertion.
//
// A binary heap of small entries; the callbacks lie in a table beside it and are reused, so that a
// steady world allocates only what a callback captures beyond two words.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/host.h"

namespace braid::base::sim {

/// What kind of thing happens; part of the trace.
enum class EventKind : uint8_t { kTurn, kDisk, kMessage, kWork, kScenario };

class EventQueue {
 public:
  using Callback = std::function<void()>;
  struct Due {
    uint64_t at_ns = 0;
    uint64_t order = 0;
    EventKind kind = EventKind::kScenario;
    uint32_t subject = 0;  // which reactor, disk, channel: for the trace
    Callback run;
  };

  void push(uint64_t at_ns, EventKind kind, uint32_t subject, Callback run) {
    const uint32_t slot = take_slot();
    slots_[slot] = std::move(run);
    heap_.push_back({at_ns, order_++, slot, subject, kind});
    sift_up(heap_.size() - 1);
  }
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  uint64_t next_at_ns() const { return heap_.empty() ? kNever : heap_.front().at_ns; }

  Due pop() {
    const Entry first = heap_.front();
    heap_.front() = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(0);
    free_slots_.push_back(first.slot);
    return {first.at_ns, first.order, first.kind, first.subject,
            std::exchange(slots_[first.slot], nullptr)};
  }

  /// Forgets everything; for the end of a world.
  void clear() {
    heap_.clear();
    slots_.clear();
    free_slots_.clear();
  }

 private:
  struct Entry {
    uint64_t at_ns;
    uint64_t order;
    uint32_t slot;
    uint32_t subject;
    EventKind kind;
    bool before(const Entry& other) const {
      return at_ns != other.at_ns ? at_ns < other.at_ns : order < other.order;
    }
  };

  uint32_t take_slot() {
    if (free_slots_.empty()) {
      slots_.emplace_back();
      return static_cast<uint32_t>(slots_.size() - 1);
    }
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  void sift_up(size_t at) {
    const Entry entry = heap_[at];
    for (; at > 0 && entry.before(heap_[(at - 1) / 2]); at = (at - 1) / 2)
      heap_[at] = heap_[(at - 1) / 2];
    heap_[at] = entry;
  }
  void sift_down(size_t at) {
    const Entry entry = heap_[at];
    for (size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
      if (!heap_[child].before(entry)) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = entry;
  }

  std::vector<Entry> heap_;
  std::vector<Callback> slots_;
  std::vector<uint32_t> free_slots_;
  uint64_t order_ = 0;
};

}  // namespace braid::base::sim
