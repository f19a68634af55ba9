#include "bnbd/frontend/detach_policy.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "base/await.h"
#include "bnbd/frontend/device_users.h"
#include "bnbd/frontend/offloaded.h"

namespace braid::bnbd {

using base::Errc;
using base::Status;

namespace {

// Programs that look at every new device (udev's blkid) have it open for a moment.
constexpr uint64_t kPatienceNs = 2 * base::kSecond;
constexpr uint64_t kRetryNs = 50 * base::kMillisecond;

/// kBusy with the names of those who use the device.
base::Error busy(const DetachSteps& steps, const std::vector<std::string>& users) {
  if (users.empty()) {
    return base::make_error(
        Errc::kBusy, "/dev/{} is in use by something that this process cannot see", steps.name);
  }
  return base::make_error(Errc::kBusy, "/dev/{} is in use: {}", steps.name, fmt::join(users, ", "));
}

/// On a worker.
Status try_politely(const DetachSteps& steps) {
  if (const auto users = users_of_block_device(steps.name); !users.empty()) {
    return busy(steps, users);
  }
  Status status = steps.remove_politely();
  if (status.code() != Errc::kBusy) return status;
  return busy(steps, users_of_block_device(steps.name));
}

}  // namespace

base::Task<Status> run_detach(base::Reactor& reactor, DetachSteps asked) {
  const auto steps = std::make_shared<DetachSteps>(std::move(asked));
  const std::function<Status()> politely = [steps] { return try_politely(*steps); };
  // With force, pages that cannot be written within the time are given up: cutting the device off
  // makes them fail, which ends the wait.
  base::Timer give_up(
      [](base::Timer& timer) { static_cast<DetachSteps*>(timer.context)->cut_off(); }, steps.get());
  if (steps->force) reactor.schedule_after(give_up, steps->force_flush_timeout_ns);

  Status status = co_await offloaded<void>(reactor, politely);
  // From the first refusal on, however long that took: so there is a second try.
  const uint64_t patience_ends_ns = reactor.now_ns() + kPatienceNs;
  while (status.code() == Errc::kBusy && !steps->force && reactor.now_ns() < patience_ends_ns) {
    co_await reactor.sleep_ns(kRetryNs);
    status = co_await offloaded<void>(reactor, politely);
  }
  if (status.ok() || !steps->force) co_return status;

  reactor.cancel(give_up);
  reactor.log().warning("{}: taken away by force; {}", steps->name, status.error().message());
  steps->cut_off();
  status = co_await offloaded<void>(reactor, steps->remove_by_force);
  if (status.code() == Errc::kBusy) co_return base::ok_status();
  co_return status;
}

}  // namespace braid::bnbd
