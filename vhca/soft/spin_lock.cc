#include "vhca/soft/spin_lock.h"

#include <thread>  // lint: allow(os) gives up the core, only when another thread holds the lock

namespace braid::vhca::soft {

void SpinLock::acquire() {
  // The holder may have been descheduled: after about a microsecond give it the core. (Nothing is
  // ever contended in a simulated world, so this is never reached there.)
  constexpr int kSpinsBeforeYield = 100;
  int spins = 0;
  while (held_.exchange(true, std::memory_order_acquire)) {
    while (held_.load(std::memory_order_relaxed)) {
      if (++spins > kSpinsBeforeYield) {
        std::this_thread::yield();
        continue;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  }
}

}  // namespace braid::vhca::soft
