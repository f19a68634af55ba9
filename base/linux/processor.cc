#include <sched.h>

#include <algorithm>

#include "base/linux_processor.h"

namespace braid::base {

unsigned linux_processor() {
  return static_cast<unsigned>(std::max(sched_getcpu(), 0));
}

}  // namespace braid::base
