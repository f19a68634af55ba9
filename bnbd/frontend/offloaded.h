// Blocking work on a worker, as an awaitable with a value.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/await.h"
#include "base/reactor.h"
#include "base/result.h"
#include "base/task.h"

namespace braid::bnbd {

/// Runs `work` on a worker and gives its result. `work` owns all that it touches: if the task is
/// destroyed meanwhile, it still ends.
template <typename T>
base::Task<base::Result<T>> offloaded(base::Reactor& reactor,
                                      std::function<base::Result<T>()> work) {
  auto result = std::make_shared<std::optional<base::Result<T>>>();
  // Named before the co_await: g++ 12 destroys a closure made in that expression twice.
  std::function<void()> run = [work = std::move(work), result] { result->emplace(work()); };
  co_await reactor.offload(std::move(run));
  co_return std::move(**result);
}

}  // namespace braid::bnbd
