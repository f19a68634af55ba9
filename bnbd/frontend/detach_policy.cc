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
using base::Result;
using base::Status;

namespace {

// Programs that look at every new device (udev's blkid) have it open for a moment.
constexpr uint64_t kDetachPatienceNs = 2 * base::kSecond;
constexpr uint64_t kRetryNs = 50 * base::kMillisecond;

/// kBusy with the names of those who use the device.
base::Error busy(const DetachSteps& steps, const std::vector<std::string>& users) {
  if (users.empty()) {
    return base::make_error(
        Errc::kBusy, "/dev/{} is in use by something that this process cannot see", steps.name);
  }
  return base::make_error(Errc::kBusy, "/dev/{} is in use: {}", steps.name, fmt::join(users, ", "));
}

/// On a worker. Looks at all processes, and not at the device.
Status check_users(const DetachSteps& steps) {
  const auto users = users_of_block_device(steps.name);
  return users.empty() ? base::ok_status() : busy(steps, users);
}

/// On a worker.
Status try_removal(const DetachSteps& steps) {
  const bool silent = steps.mode == DetachMode::kIfClean;
  Status status = silent ? steps.remove_if_clean() : steps.remove_politely();
  if (status.code() != Errc::kBusy) return status;
  return busy(steps, users_of_block_device(steps.name));
}

/// With force, pages are given up once the device has answered nothing for the time: cutting it off
/// makes them fail, which ends whatever waits for them.
class GiveUp {
 public:
  GiveUp(base::Reactor& reactor, std::shared_ptr<DetachSteps> steps)
      : reactor_(reactor), steps_(std::move(steps)), timer_(&GiveUp::due, this) {}
  ~GiveUp() { reactor_.cancel(timer_); }
  GiveUp(const GiveUp&) = delete;
  GiveUp& operator=(const GiveUp&) = delete;
  void start() {
    answered_ = steps_->answered();
    reactor_.schedule_after(timer_, steps_->force_flush_timeout_ns);
  }
  bool given_up() const { return given_up_; }

 private:
  static void due(base::Timer& timer) {
    auto& self = *static_cast<GiveUp*>(timer.context);
    if (self.steps_->answered() != self.answered_) return self.start();
    self.given_up_ = true;
    self.steps_->cut_off();
    if (!self.steps_->fail_waiting) return;
    self.reactor_.host().execute([steps = self.steps_] { steps->fail_waiting(); });
  }
  base::Reactor& reactor_;
  const std::shared_ptr<DetachSteps> steps_;
  uint64_t answered_ = 0;  // when the time began
  bool given_up_ = false;
  base::Timer timer_;
};

/// What is lost when a device goes by force whose users were given the time to write; empty:
/// nothing.
base::Task<std::string> save_what_can_be(base::Reactor& reactor, std::shared_ptr<DetachSteps> steps,
                                         const GiveUp& give_up, uint64_t errors_before,
                                         Status refusal) {
  const std::string too_late =
      fmt::format("not all its dirty pages were written, and it answered nothing for {:.3g} s",
                  static_cast<double>(steps->force_flush_timeout_ns) / base::kSecond);
  if (give_up.given_up()) co_return too_late;
  if (refusal.code() != Errc::kBusy) co_return refusal.error().message();
  if (!steps->write_back) co_return "the kernel had cut it off before";
  const std::function<Status()> write_back = steps->write_back;
  const Status written = co_await offloaded<void>(reactor, write_back);
  if (give_up.given_up()) co_return too_late;
  if (!written.ok()) co_return written.error().message();
  const uint64_t failed = steps->errors() - errors_before;
  if (failed != 0) co_return fmt::format("{} requests of its write-back failed", failed);
  co_return std::string();
}

}  // namespace

base::Task<Result<Detached>> run_detach(base::Reactor& reactor, DetachSteps asked) {
  const auto steps = std::make_shared<DetachSteps>(std::move(asked));
  const std::function<Status()> look = [steps] { return check_users(*steps); };
  const std::function<Status()> remove = [steps] { return try_removal(*steps); };
  const bool force = steps->mode == DetachMode::kForce;
  GiveUp give_up(reactor, steps);
  const uint64_t errors_before = steps->errors();

  Status status;
  uint64_t patience_ends_ns = base::kNever;
  for (;;) {
    status = co_await offloaded<void>(reactor, look);
    if (force) give_up.start();
    if (status.ok()) status = co_await offloaded<void>(reactor, remove);
    if (force || status.code() != Errc::kBusy || reactor.now_ns() >= patience_ends_ns) break;
    // From the first refusal on, however long that took: so there is a second try.
    if (patience_ends_ns == base::kNever) patience_ends_ns = reactor.now_ns() + kDetachPatienceNs;
    co_await reactor.sleep_ns(kRetryNs);
  }
  if (status.ok()) co_return Detached();
  if (!force) co_return status.error();

  Detached detached;
  detached.lost = co_await save_what_can_be(reactor, steps, give_up, errors_before, status);
  reactor.log().warning("{}: taken away by force; {}; {}", steps->name, status.error().message(),
                        detached.lost.empty() ? "what was dirty has been written"
                                              : "data may be lost: " + detached.lost);
  steps->cut_off();
  status = co_await offloaded<void>(reactor, steps->remove_by_force);
  if (!status.ok() && status.code() != Errc::kBusy) co_return status.error();
  co_return detached;
}

}  // namespace braid::bnbd
