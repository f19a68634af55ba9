// Turns: which thread is in a context. One word decides: the program's thread swaps it on entering,
// one uncontended atomic operation, and stores it on leaving; the keeper (capi/keeper.h) comes in
// only where nobody is.
//
//   word = entries of the program that turned the reactor so far * 4 + { kFree, kUser, kKeeper }
//
// It lies in a page that a fork wipes (MADV_WIPEONFORK): in the child it is 0, which is none of
// them, so that whatever comes in there is refused without asking who it is.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace braid::capi {

class Turns {
 public:
  Turns();
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// False: there was no memory for the word; nothing else may be called.
  bool valid() const { return word_ != nullptr; }

  enum class Entry : uint8_t { kIn, kBusy /* another thread is in */, kForked };
  /// The program's thread. Waits for the keeper, whose rounds are short.
  Entry enter() {
    uint64_t now = word_->load(std::memory_order_relaxed);
    if (state(now) == kFree &&
        word_->compare_exchange_strong(now, now + (kUser - kFree), std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      return Entry::kIn;
    }
    return enter_slowly(now);
  }
  /// `turned`: the reactor's work was done; the keeper need not.
  void leave(bool turned) {
    const uint64_t now = word_->load(std::memory_order_relaxed);
    const uint64_t counted = turned ? kEntry : 0;
    word_->store(now + counted - (kUser - kFree), std::memory_order_release);
  }
  /// A thread of the program is in: for who is not, another one.
  bool used() const { return state(word_->load(std::memory_order_acquire)) == kUser; }
  bool forked() const { return word_->load(std::memory_order_relaxed) == 0; }

  /// The keeper: in, if nobody is and nobody turned the reactor since the last call. `seen` is its
  /// own.
  bool enter_unused(uint64_t& seen);
  void leave_unused();

 private:
  static constexpr uint64_t kFree = 1, kUser = 2, kKeeper = 3, kEntry = 4;
  static uint64_t state(uint64_t word) { return word % kEntry; }
  Entry enter_slowly(uint64_t now);

  std::atomic<uint64_t>* word_ = nullptr;
};

}  // namespace braid::capi
