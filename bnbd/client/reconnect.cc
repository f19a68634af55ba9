// The path comes and goes: devices are opened again before held requests are sent again.
#include <algorithm>

#include "bnbd/client/device_impl.h"
#include "bnbd/client/session_impl.h"

namespace braid::bnbd::client {

using base::Errc;

namespace {

/// One more for as long as this lives, however its task ends: with the session, or after it.
class Counted {
 public:
  explicit Counted(std::shared_ptr<unsigned> count) : count_(std::move(count)) { ++*count_; }
  ~Counted() { --*count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  const std::shared_ptr<unsigned> count_;
};

}  // namespace

void SessionImpl::disconnected(const base::Error& why) {
  log_.warning("path to {} lost: {}; I/O is held", server_text(), why.message());
  forget_path();
}

void SessionImpl::requests_returned() {
  for (DeviceImpl* device : devices_) device->requests_returned();
}

void SessionImpl::lost(const base::Error& why) {
  for (DeviceImpl* device : devices_) device->lost(why.message());
}

/// What was open on the former path is not any more, nor what a turn had opened before it broke
/// off.
void SessionImpl::forget_path() {
  path_up_ = false;
  ++path_generation_;
  late_ids_.clear();
  news_seen_ = 0;
  noticed_ = told_early_ = false;
  home_.cancel(reopen_timer_);
  for (DeviceImpl* device : devices_) device->path_lost();
}

/// Runs while TRS holds all I/O. What the server refuses is one device's trouble; only what breaks
/// the path itself is told to TRS.
base::Task<base::Status> SessionImpl::reconnected() {
  BRAID_CO_CHECK(co_await exchange_versions());
  BRAID_CO_CHECK(co_await reopen_all());
  // Requests of devices that are not open must not reach another: they go out with no id.
  for (DeviceImpl* device : devices_) device->address_held();
  co_await queues_passed();
  co_return base::ok_status();
}

void SessionImpl::restored() {
  path_up_ = true;
  log_.info("path to {} is back", server_text());
  for (DeviceImpl* device : devices_) {
    device->path_restored();
    if (device->remapping()) reopen_later(0);  // asked for when this path had opened the others
  }
  follow_news();
  serve();
}

/// Opens all devices again, side by side as far as admin permits go: one whose disk is slow to
/// answer keeps the others' I/O waiting no longer than itself. An error means that the path is
/// gone.
base::Task<base::Status> SessionImpl::reopen_all() {
  base::Status outcome;
  size_t under_way = devices_.size();
  base::Signal ended(home_);
  std::vector<base::Task<void>> openings;  // before `ended` they go, whenever this task does
  for (const DeviceImpl* device : devices_) {
    openings.push_back(reopen_beside(device->serial(), outcome, under_way, ended));
  }
  for (base::Task<void>& opening : openings) opening.start();
  // NOLINTNEXTLINE(bugprone-infinite-loop): each opening counts it down
  while (under_way > 0) co_await ended.wait();
  co_return outcome;
}

base::Task<void> SessionImpl::reopen_beside(uint64_t serial, base::Status& outcome,
                                            size_t& under_way, base::Signal& ended) {
  const base::Status status = co_await reopen(serial);
  if (outcome.ok()) outcome = status;
  --under_way;
  ended.notify_all();
}

base::Task<base::Status> SessionImpl::reopen(uint64_t serial) {
  DeviceImpl* device = find(serial);
  if (device == nullptr || !device->wants_reopening()) co_return base::ok_status();
  const uint64_t generation = path_generation_;
  const std::string name = device->name();
  Claim claim;
  claim.again = true;
  claim.remap = device->remapping();
  claim.tenure = device->tenure();
  OpenReply reply = co_await send_open(name, device->mode(), claim);
  if (generation != path_generation_) {
    co_return base::make_error(Errc::kDisconnected, "the path was lost while '{}' was opened again",
                               name);
  }
  if (!reply.path.ok()) co_return reply.path;
  device = find(serial);
  const bool wanted = device != nullptr && device->wants_reopening();
  if (!reply.answer.ok()) {
    if (wanted) device->refused(reply.answer.error());
  } else if (wanted) {
    device->reopened(*reply.answer);
  }
  // Closed by its user meanwhile, or not the device it was: nobody else must find it taken.
  if (!reply.answer.ok() || in_use(reply.answer->device_id)) co_return base::ok_status();
  if (opening_.empty()) {
    co_await send_close(reply.answer->device_id);
  } else {
    close_unused(reply.answer->device_id);
  }
  co_return base::ok_status();
}

base::Task<base::Status> SessionImpl::reopen_alone(uint64_t serial) {
  base::Status path;
  {
    const Counted counted(reopening_alone_);
    path = co_await reopen(serial);
  }
  opening_ended();
  // The path of the question was lost while another stays: no answer has said when to ask again.
  if (!path.ok() && path_up_) reopen_later(options_.reopen_delay_ns);
  serve();
  co_return path;
}

void SessionImpl::reopen_later(uint64_t delay_ns) {
  if (closing_) return;
  const bool sooner =
      reopen_timer_.pending() && reopen_timer_.deadline_ns() <= home_.now_ns() + delay_ns;
  if (!sooner) home_.schedule_after(reopen_timer_, delay_ns);
}

void SessionImpl::reopen_due(base::Timer& timer) {
  auto& self = *static_cast<SessionImpl*>(timer.context);
  if (self.closing_ || !self.path_up_) return;  // the next path opens all devices
  if (self.reopen_task_ && !self.reopen_task_.done()) {
    return self.reopen_later(self.options_.reopen_delay_ns);
  }
  self.reopen_task_ = self.reopen_unavailable();
  self.reopen_task_.start();
}

base::Task<void> SessionImpl::reopen_unavailable() {
  const base::Status status = co_await reopen_all();
  if (!path_up_) co_return;
  opening_ended();
  if (!status.ok()) {
    log_.warning("opening devices again: {}", status.error().message());
    reopen_later(options_.reopen_delay_ns);
  }
  serve();
}

DeviceImpl* SessionImpl::find(uint64_t serial) {
  const auto found = std::find_if(devices_.begin(), devices_.end(),
                                  [&](const DeviceImpl* d) { return d->serial() == serial; });
  return found == devices_.end() ? nullptr : *found;
}

}  // namespace braid::bnbd::client
