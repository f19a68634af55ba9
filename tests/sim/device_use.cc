#include "tests/sim/device_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace braid::sim {

using base::kMillisecond;

namespace {

// A device closes without its path; with one, it waits for what is on the wire: until a stopped or
// dead server is found out (< 1 s, and what stops this client itself), a disk stalls 1.5 s.
constexpr uint64_t kCloseMaxNs = 20 * base::kSecond;

}  // namespace

void DeviceUse::begin(bnbd::RemoteSession& session, std::function<UntoldLosses::Ways()> made) {
  session_ = &session;
  made_ = std::move(made);
  ending_ = leave_open_ = ended_ = false;
  life_ = live();
  life_.start();
}

void DeviceUse::end(bool leave_open) {
  ending_ = true;
  leave_open_ = leave_open;
}

base::Task<void> DeviceUse::live() {
  while (!ending_) {
    bool open_now = false;
    if (wish() != Wish::kNothing) open_now = co_await open();
    while (open_now && !ending_ && !must_close()) {
      if (remote_->state() == bnbd::RemoteState::kRevoked) co_await take_back();
      co_await context_.reactor.sleep_ns(nap_ns());
      co_await follow_size();
    }
    if (open_now && !(ending_ && leave_open_)) co_await close();
    if (!ending_) co_await context_.reactor.sleep_ns(nap_ns());
  }
  if (run_ != nullptr) {
    prepare_to_close();
    if (run_->filters() != nullptr) co_await run_->filters()->let_go();
  }
  ended_ = true;
}

base::Task<bool> DeviceUse::open() {
  Board& board = context_.board;
  as_ = wish();
  if (as_ == Wish::kWrite) board.hold(context_.client, device_);
  bnbd::RemoteDeviceOptions options;
  options.name = name();
  options.mode =
      as_ == Wish::kRead ? bnbd::wire::AccessMode::kReadOnly : bnbd::wire::AccessMode::kReadWrite;
  options.queue_depth = context_.me().device_queue_depth;
  options.give_up_after_ns = context_.me().give_up_after_ns;
  options.lost_after_ns = context_.me().lost_after_ns;
  context_.judge.asks(context_.client, device_, as_);
  auto device = co_await session_->open_device(options);
  if (!device.ok()) {
    last_refusal_ = device.error().message();
    if (as_ == Wish::kContest && device.code() == base::Errc::kBusy) ++board.counters.contested;
    board.release(context_.client, device_);
    co_return false;
  }
  remaps_seen_ = board.remaps(context_.client, device_);
  contest_until_ns_ = context_.reactor.now_ns() + context_.random.below(500 * kMillisecond);
  if (as_ == Wish::kWrite) board.opened_for_writing(context_.client, device_);
  remote_ = device->get();
  context_.judge.opened(context_.client, device_, as_, asked());
  run_ = std::make_unique<DeviceRun>(context_, device_, as_ != Wish::kRead);
  auto filters = co_await put_filters_on();
  const base::Status status = filters.ok() ? run_->opened(std::move(*device), std::move(*filters))
                                           : base::Status(filters.error());
  if (status.ok()) co_return true;
  if (status.code() != base::Errc::kNoMemory)
    context_.judge.violations().add("{}: no region or filter: {}", context_.me().name,
                                    status.error().message());
  co_await close();  // before the local `device` goes, where the run has not taken it
  co_return false;
}

/// None: null.
base::Task<base::Result<std::unique_ptr<bnbd::FilterStack>>> DeviceUse::put_filters_on() {
  std::vector<bnbd::FilterSpec> specs = context_.plan.filters_of(context_.client, device_);
  if (specs.empty()) co_return nullptr;
  auto filters =
      co_await bnbd::FilterStack::create(context_.reactor, *remote_, std::move(specs), name());
  if (!filters.ok()) co_return filters.error();
  remote_->watch([this] {
    size_changed_ = true;
    if (run_ != nullptr && run_->filters() != nullptr) run_->filters()->size_changed();
  });
  (*filters)->size_changed();
  size_changed_ = true;
  co_return std::move(*filters);
}

/// One that fails for want of memory is tried again.
base::Task<void> DeviceUse::follow_size() {
  if (!std::exchange(size_changed_, false) || run_->filters() == nullptr) co_return;
  const base::Status followed = co_await run_->filters()->follow_size();
  size_changed_ = size_changed_ || !followed.ok();
}

Judge::Asked DeviceUse::asked() {
  Judge::Asked asked;
  const std::vector<bnbd::FilterSpec> specs = context_.plan.filters_of(context_.client, device_);
  asked.checks = std::any_of(specs.begin(), specs.end(), [](const bnbd::FilterSpec& filter) {
    return filter.kind == bnbd::FilterKind::kChecksum;
  });
  asked.losses = [session = session_] {
    const bool lost = session->state() == trs::SessionState::kReconnecting;
    return session->statistics().reconnects + (lost ? 1 : 0);
  };
  asked.ways = [made = made_, remote = remote_] {
    UntoldLosses::Ways ways = made();
    ways.reopened = remote->status().reopened;
    return ways;
  };
  return asked;
}

/// Its user notices sooner or later.
base::Task<void> DeviceUse::take_back() {
  co_await context_.reactor.sleep_ns(nap_ns());
  context_.judge.remaps(context_.client, device_);
  if (run_->filters() != nullptr) run_->filters()->forget();
  const base::Status mapped = co_await remote_->remap();
  if (mapped.ok()) ++context_.board.counters.taken_away;
}

bool DeviceUse::must_close() {
  if (remote_->state() == bnbd::RemoteState::kLost) return true;
  if (remote_->state() == bnbd::RemoteState::kReplaced) {
    ++context_.board.counters.replaced;
    return true;
  }
  if (remote_->state() == bnbd::RemoteState::kSuperseded) {
    ++context_.board.counters.superseded;
    return true;
  }
  if (remaps_seen_ != context_.board.remaps(context_.client, device_)) {
    if (!run_->idle()) ++context_.board.counters.devices_remapped;
    return true;
  }
  if (as_ == Wish::kContest && context_.reactor.now_ns() > contest_until_ns_) return true;
  return wish() != as_;
}

void DeviceUse::prepare_to_close() {
  run_->stop();
  context_.judge.closing(context_.client, device_);
}

base::Task<void> DeviceUse::close() {
  prepare_to_close();
  const uint64_t begin_ns = context_.reactor.now_ns();
  bnbd::FilterStack* const filters = run_->filters();
  if (filters != nullptr) co_await filters->let_go();
  co_await remote_->close();
  if (filters != nullptr) co_await filters->drained();
  const uint64_t took_ns = context_.reactor.now_ns() - begin_ns;
  if (took_ns > kCloseMaxNs)
    context_.judge.violations().add("{}: closing {} took {} s", context_.me().name, name(),
                                    took_ns / base::kSecond);
  drop();
}

base::Task<void> DeviceUse::drained() {
  if (run_ != nullptr && run_->filters() != nullptr) co_await run_->filters()->drained();
}

void DeviceUse::drop() {
  if (run_ == nullptr) return;
  run_.reset();
  remote_ = nullptr;
  as_ = Wish::kNothing;
  context_.judge.closed(context_.client, device_);
  context_.board.release(context_.client, device_);
}

void DeviceUse::activity_changed() {
  if (run_ != nullptr) run_->activity_changed();
}

bool DeviceUse::at_rest() const {
  if (wish() == Wish::kNothing) return run_ == nullptr;
  return run_ != nullptr && as_ == wish() && run_->idle() && !run_->behind() &&
         remote_->state() == bnbd::RemoteState::kOpen;
}

bool DeviceUse::verified() const {
  return wish() == Wish::kNothing || (run_ != nullptr && run_->verified());
}

std::string DeviceUse::explain() const {
  if (remote_ != nullptr) return remote_->explain();
  return wish() == Wish::kNothing ? "" : fmt::format("'{}' is closed: {}", name(), last_refusal_);
}

}  // namespace braid::sim
