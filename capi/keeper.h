// Keeper: the thread that turns a context's reactor while the program does not call, so that
// heartbeats are answered, paths come back and what was submitted goes on (docs/c-api.md).
//
// It sleeps, looks every kPeriod, and runs a round where nobody has turned the reactor since its
// last look: a session is never left alone for longer than two periods, of the six times 150 ms
// after which a peer is taken for dead.
//
// Threads: made and destroyed by whoever is in the context; `round` runs on its own thread, in the
// context (Turns).
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "base/host.h"
#include "base/result.h"
#include "capi/turns.h"

namespace braid::capi {

class Keeper {
 public:
  static constexpr std::chrono::milliseconds kPeriod{50};
  static base::Result<std::unique_ptr<Keeper>> start(base::Host& host, Turns& turns,
                                                     std::function<void()> round);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  Keeper(Turns& turns, std::function<void()> round) : turns_(turns), round_(std::move(round)) {}
  void run();
  bool sleep();  // false: it is to end

  Turns& turns_;
  const std::function<void()> round_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::unique_ptr<base::Thread> thread_;
};

}  // namespace braid::capi
