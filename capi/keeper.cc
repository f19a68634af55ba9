#include "capi/keeper.h"

namespace braid::capi {

base::Result<std::unique_ptr<Keeper>> Keeper::start(base::Host& host, Turns& turns,
                                                    std::function<void()> round) {
  std::unique_ptr<Keeper> keeper(new Keeper(turns, std::move(round)));
  BRAID_TRY(keeper->thread_,
            host.start_thread("braid-keeper", [self = keeper.get()] { self->run(); }));
  return keeper;
}

Keeper::~Keeper() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ended_.notify_one();
}

void Keeper::run() {
  for (uint64_t seen = 0; sleep();) {
    if (!turns_.enter_unused(seen)) continue;
    round_();
    turns_.leave_unused();
  }
}

bool Keeper::sleep() {
  std::unique_lock lock(mutex_);
  return !ended_.wait_for(lock, kPeriod, [this] { return ending_; });
}

}  // namespace braid::capi
