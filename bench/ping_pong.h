// A number that goes back and forth between two threads or processes, in two cache lines.
//
// One thread sends, one answers.
#pragma once

#include <atomic>
#include <cstdint>

#include "bench/spin.h"

namespace braid::bench {

struct PingPong {
  alignas(64) std::atomic<uint32_t> there{0};
  alignas(64) std::atomic<uint32_t> back{0};
};

/// One round trip; `number` counts up from 1.
inline void send_ping(PingPong& lines, uint32_t number) {
  lines.there.store(number, std::memory_order_release);
  Spinner spinner;
  while (lines.back.load(std::memory_order_acquire) != number) spinner.turn();
}

/// Answers 1 to `last`.
inline void answer_pings(PingPong& lines, uint32_t last) {
  for (uint32_t i = 1;; ++i) {
    Spinner spinner;
    while (lines.there.load(std::memory_order_acquire) != i) spinner.turn();
    lines.back.store(i, std::memory_order_release);
    if (i == last) return;
  }
}

}  // namespace braid::bench
