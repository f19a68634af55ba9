// What the corpus of a fuzz target must reach, so that one that is worn out or was made for an
// older target is seen: each state has a name and is counted. replay_main.cc fails and names what
// no input has reached. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace braid::fuzz {

/// One state, declared at namespace scope; it lives as long as the process.
class Reached {
 public:
  explicit Reached(std::string name) : name_(std::move(name)), next_(std::exchange(head(), this)) {}
  Reached(const Reached&) = delete;
  Reached& operator=(const Reached&) = delete;

  /// Counts once, if it is so.
  void count(bool is_so = true) { times_.fetch_add(is_so ? 1 : 0, std::memory_order_relaxed); }

  uint64_t times() const { return times_.load(std::memory_order_relaxed); }
  const std::string& name() const { return name_; }
  /// Of all that the program declares; null: none.
  static const Reached* first() { return head(); }
  const Reached* next() const { return next_; }

 private:
  static Reached*& head() {
    static Reached* all = nullptr;
    return all;
  }
  const std::string name_;
  std::atomic<uint64_t> times_{0};
  Reached* const next_;
};

/// What a parser says: each corpus has inputs that it takes, and others.
class Verdicts {
 public:
  explicit Verdicts(const std::string& what)
      : accepted_(what + ": accepted"), refused_(what + ": refused") {}
  /// The same truth value.
  bool count(bool accepted) {
    (accepted ? accepted_ : refused_).count();
    return accepted;
  }

 private:
  Reached accepted_, refused_;
};

}  // namespace braid::fuzz
