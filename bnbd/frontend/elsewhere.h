// Work on another reactor, as an awaitable with a value.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/await.h"
#include "base/reactor.h"
#include "base/task.h"

namespace braid::bnbd {

/// Runs a task that `make` makes on `there`, from a task on `here`, and gives its value; on `here`
/// itself it is just awaited. What was posted to `there` before has run by then. If the awaiting
/// task is destroyed meanwhile, the other still ends: it owns all that it touches.
template <typename T>
base::Task<T> elsewhere(base::Reactor& here, base::Reactor& there,
                        std::function<base::Task<T>()> make) {
  if (&here == &there) {
    base::Task<T> task = make();
    co_return co_await std::move(task);
  }
  struct Answer {
    explicit Answer(base::Reactor& reactor) : came(reactor) {}
    std::optional<T> value;
    base::Signal came;
  };
  using Make = std::function<base::Task<T>()>;
  const auto answer = std::make_shared<Answer>(here);
  auto run = [](std::shared_ptr<Answer> to, base::Reactor* back, Make work) -> base::Task<void> {
    base::Task<T> task = work();
    T value = co_await std::move(task);
    const auto carried = std::make_shared<T>(std::move(value));
    back->post([to, carried] {
      to->value.emplace(std::move(*carried));
      to->came.notify_all();
    });
  };
  there.post([run, answer, &here, &there, work = std::move(make)] {
    there.spawn(run(answer, &here, work));
  });
  while (!answer->value) co_await answer->came.wait();
  co_return std::move(*answer->value);
}

}  // namespace braid::bnbd
