// A remote device's life: open, path down, unavailable, replaced, closed.
#include <algorithm>

#include "bnbd/client/device_impl.h"
#include "bnbd/client/reopen.h"

namespace braid::bnbd::client {

using base::Errc;

namespace {

std::string seconds_text(uint64_t duration_ns) {
  const uint64_t ms = duration_ns / base::kMillisecond;
  return fmt::format("{}.{} s", ms / 1000, ms % 1000 / 100);
}

}  // namespace

DeviceImpl::DeviceImpl(SessionImpl& session, uint64_t serial, RemoteDeviceOptions options,
                       const wire::OpenedDevice& opened)
    : session_(session),
      serial_(serial),
      options_(std::move(options)),
      log_(session.log().child("device")),
      sizes_(session.home(), log_, {.burst = 10, .per_second = 1}),
      give_up_timer_(&DeviceImpl::give_up_due, this),
      close_timer_(&DeviceImpl::close_due, this),
      ledger_(session.reactors(), session.home().host().mutant("era-stuck")),
      idle_(std::make_shared<base::Signal>(session.home())) {
  take_over(opened);
  for (size_t i = 0; i < session.reactors(); ++i) {
    queues_.push_back(
        std::make_shared<DeviceQueue>(*this, i, session.queue(i), ledger_, options_, view()));
  }
}

DeviceImpl::~DeviceImpl() {
  if (state_ != RemoteState::kClosed) session_.forget(*this);
}

void DeviceImpl::join() {
  on_queues([](DeviceQueue& queue) { queue.join(); });
}

std::vector<BlockQueue> DeviceImpl::queues() {
  std::vector<BlockQueue> all{{&session_.home(), this}};
  for (size_t i = 1; i < queues_.size(); ++i) {
    all.push_back({&queues_[i]->reactor(), queues_[i].get()});
  }
  return all;
}

DeviceView DeviceImpl::view() const {
  DeviceView view;
  view.open = state_ == RemoteState::kOpen;
  view.epoch = epoch_;
  view.id = device_id_;
  view.server_fua = server_fua_;
  view.sends_priority = session_.sends_priority();
  view.server_max_io_bytes = server_max_io_bytes_;
  view.verdict = verdict();
  view.info = info_;
  return view;
}

/// Whenever something changes of what view() tells.
void DeviceImpl::tell_queues() {
  on_queues([view = view()](DeviceQueue& queue) { queue.see(view); });
}

void DeviceImpl::fail_all(Errc status) {
  on_queues([status](DeviceQueue& queue) { queue.fail_all(status); });
}

void DeviceImpl::set_state(RemoteState state, std::string why) {
  if (state_ != state) {
    log_.info("{}: {} -> {}{}{}", options_.name, to_string(state_), to_string(state),
              why.empty() ? "" : ": ", why);
  }
  const bool changed = state_ != state;
  state_ = state;
  why_ = std::move(why);
  count_absence();
  tell_queues();
  if (changed && changed_) changed_();
}

void DeviceImpl::set_size(uint64_t size_bytes) {
  size_bytes -= size_bytes % info_.logical_block_bytes;
  if (size_bytes == info_.size_bytes) return;
  sizes_.info("{}: {} from {} to {} bytes", options_.name,
              size_bytes > info_.size_bytes ? "grew" : "shrank", info_.size_bytes, size_bytes);
  info_.size_bytes = size_bytes;
  tell_queues();
  if (changed_) changed_();
}

void DeviceImpl::news(const wire::DeviceNews& told) {
  if (state_ != RemoteState::kOpen || told.device_id != device_id_) return;
  if (told.kind == wire::NewsKind::kResized) return set_size(told.size_bytes);
  revoked("the server's operator has closed it");
}

/// Nothing of what is held may reach the server by itself: its operator may have given the device
/// to others.
void DeviceImpl::revoked(std::string why) {
  device_id_ = wire::kNoDevice;
  remapping_ = false;
  log_.warning("{}: {}; I/O is held until it is mapped again or unmapped", options_.name, why);
  set_state(RemoteState::kRevoked, std::move(why));
}

base::Status DeviceImpl::may_remap() const {
  switch (state()) {
    case RemoteState::kRevoked:
    case RemoteState::kUnavailable:
      return {};
    case RemoteState::kReplaced:
      if (shrank_) return {};
      break;
    case RemoteState::kOpen:
      return base::make_error(Errc::kExists, "'{}' is open", options_.name);
    case RemoteState::kPathDown:
      return base::make_error(Errc::kDisconnected, "{}", explain());
    case RemoteState::kSuperseded:
    case RemoteState::kLost:
    case RemoteState::kClosed:
      break;
  }
  return base::make_error(Errc::kStale, "{}", explain());
}

base::Task<base::Status> DeviceImpl::remap() {
  BRAID_CO_CHECK(may_remap());
  remapping_ = true;
  const bool path_up = session_.path_up();
  set_state(path_up ? RemoteState::kUnavailable : RemoteState::kPathDown,
            "it is being mapped again");
  if (!path_up) co_return base::Error(Errc::kDisconnected, explain());
  const base::Status path = co_await session_.reopen_alone(serial_);
  if (state_ == RemoteState::kOpen) co_return base::ok_status();
  if (!path.ok()) co_return path;
  co_return base::Error(refusal_ == Errc::kOk ? Errc::kStale : refusal_, explain());
}

/// An absence begins when the device is not open, and ends when it is and requests flow. What was
/// opened again on a path that is lost before that has been away all the time.
void DeviceImpl::count_absence() {
  const bool over = state_ == RemoteState::kLost || state_ == RemoteState::kClosed;
  if (state() == RemoteState::kOpen || over) {
    gave_up_ = false;
    session_.home().cancel(give_up_timer_);
  } else if (!gave_up_ && !give_up_timer_.pending() && options_.give_up_after_ns != base::kNever) {
    session_.home().schedule_after(give_up_timer_, options_.give_up_after_ns);
  }
}

void DeviceImpl::give_up_due(base::Timer& timer) {
  auto& self = *static_cast<DeviceImpl*>(timer.context);
  self.hold_no_longer("after " + seconds_text(self.options_.give_up_after_ns));
}

void DeviceImpl::give_up() {
  const RemoteState now = state();
  const bool waits = now == RemoteState::kPathDown || now == RemoteState::kUnavailable ||
                     now == RemoteState::kReplaced || now == RemoteState::kRevoked;
  if (!waits || gave_up_) return;
  session_.home().cancel(give_up_timer_);
  hold_no_longer("because its user did not want to wait");
}

/// What is on a wire now ends by its answer, or comes back and ends then.
void DeviceImpl::hold_no_longer(std::string why) {
  if (closing_ || session_.home().host().mutant("give-up-ignored")) return;
  gave_up_ = true;
  gave_up_why_ = std::move(why);
  log_.warning("{}: gave up {}: {}", options_.name, gave_up_why_, explain());
  tell_queues();
  fail_all(Errc::kTimedOut);
}

/// How requests end that are neither done nor held any more; kOk while they are.
Errc DeviceImpl::verdict() const {
  if (closing_) return Errc::kCanceled;
  if (state_ == RemoteState::kSuperseded) return Errc::kIo;
  if (state_ == RemoteState::kLost) return Errc::kDisconnected;
  return gave_up_ ? Errc::kTimedOut : Errc::kOk;
}

/// Adopts what the server says of the device.
void DeviceImpl::take_over(const wire::OpenedDevice& opened) {
  device_id_ = opened.device_id;
  tenure_ = opened.tenure;
  lineage_ = session_.lineage();
  server_fua_ = opened.force_unit_access || !opened.write_cache;
  server_max_io_bytes_ = std::min(opened.max_io_bytes, session_.limits().max_io_bytes);
  info_ = describe(opened, options_.mode == wire::AccessMode::kReadOnly, options_.queue_depth,
                   options_.max_io_bytes);
}

void DeviceImpl::path_lost() {
  if (state_ == RemoteState::kOpen || state_ == RemoteState::kUnavailable) {
    set_state(RemoteState::kPathDown, "");
  }
}

/// Who is superseded must not come back to other words.
void DeviceImpl::lost(std::string why) {
  if (closing_ || state_ == RemoteState::kSuperseded) return;
  device_id_ = wire::kNoDevice;
  remapping_ = false;
  log_.error("{}: {}; what was held fails, and so does all I/O until it is unmapped", options_.name,
             why);
  set_state(RemoteState::kLost, std::move(why));
  fail_all(Errc::kDisconnected);
}

void DeviceImpl::requests_returned() {
  if (!closing_ && !gave_up_) return;
  on_queues([](DeviceQueue& queue) { queue.requests_returned(); });
}

void DeviceImpl::reopened(const wire::OpenedDevice& opened) {
  const ReopenVerdict verdict = judge_reopen(info_, tenure_, opened, remapping_);
  const base::Host& host = session_.home().host();
  const bool let_pass =
      host.mutant("identity-ignored") || (verdict.shrank && host.mutant("shrink-ignored"));
  if (verdict.replaced && !let_pass) {
    device_id_ = wire::kNoDevice;
    shrank_ = verdict.shrank;
    refusal_ = Errc::kOk;
    remapping_ = false;
    return set_state(RemoteState::kReplaced, verdict.why);
  }
  if (verdict.superseded && !host.mutant("tenure-ignored")) {
    return superseded("another client has opened it for writing since");
  }
  ++reopened_;
  if (verdict.restarted && !host.mutant("incarnation-ignored") &&
      ledger_.restarted(!session_.path_up() && session_.lineage() != lineage_)) {
    log_.error(
        "{}: while acknowledged writes were not flushed, the server's machine restarted or a flush "
        "failed there; the next flush will fail",
        options_.name);
  }
  set_size(opened.size_bytes);
  take_over(opened);
  ++epoch_;
  remapping_ = false;
  set_state(RemoteState::kOpen, "");
}

/// What is held was meant to be written before what the other client wrote, and so was what its
/// users believe to be on the disk: nothing is sent any more, neither old nor new.
void DeviceImpl::superseded(std::string why) {
  device_id_ = wire::kNoDevice;
  log_.error("{}: {}; what was held fails, and so does all I/O until it is unmapped", options_.name,
             why);
  set_state(RemoteState::kSuperseded, std::move(why));
  session_.home().cancel(give_up_timer_);
  fail_all(Errc::kIo);
}

void DeviceImpl::refused(const base::Error& why) {
  refusal_ = why.code();
  if (why.code() == Errc::kStale && tenure_ != 0) return superseded(why.message());
  if (why.code() == Errc::kCanceled) return revoked(why.message());
  device_id_ = wire::kNoDevice;
  set_state(RemoteState::kUnavailable, why.message());
  ask_again_later();
}

/// A disk that is slow may answer at any moment.
void DeviceImpl::ask_again_later() {
  const bool slow = refusal_ == Errc::kTimedOut;
  session_.reopen_later(slow ? session_.reopen_delay_ns() / 8 : session_.reopen_delay_ns());
}

void DeviceImpl::path_restored() {
  if (state_ == RemoteState::kUnavailable) ask_again_later();
  const bool gave_up = gave_up_;
  count_absence();
  if (gave_up != gave_up_) tell_queues();
}

void DeviceImpl::address_held() {
  on_queues([](DeviceQueue& queue) { queue.address_held(); });
}

void DeviceImpl::lost_at_server(uint64_t epoch) {
  if (state_ != RemoteState::kOpen || epoch != epoch_) return;
  set_state(RemoteState::kUnavailable, "the server closed the device");
  session_.reopen_later(session_.reopen_delay_ns());
}

void DeviceImpl::queue_quiet() {
  --loud_queues_;
  idle_->notify_all();
}

base::Task<void> DeviceImpl::close() {
  BRAID_ASSERT(!closing_);
  const std::shared_ptr<base::Signal> idle = idle_;
  closing_ = true;
  const bool opened = open_at_server();  // also if others are not yet
  const uint32_t id = device_id_;
  const uint64_t generation = session_.path_generation();
  session_.home().cancel(give_up_timer_);
  loud_queues_ = queues_.size();
  tell_queues();
  on_queues([](DeviceQueue& queue) { queue.begin_close(); });
  const uint64_t patience_ns = session_.close_patience_ns();
  if (patience_ns != base::kNever) session_.home().schedule_after(close_timer_, patience_ns);
  while (loud_queues_ > 0) co_await idle->wait();
  session_.home().cancel(close_timer_);
  const bool still_open = generation == session_.path_generation() && id == device_id_;
  if (opened && still_open) co_await session_.send_close(id);
  set_state(RemoteState::kClosed, "closed by its user");
  session_.forget(*this);
}

/// A disk that hangs behind a live path answers nothing: only the loss of the path ends what it
/// has.
void DeviceImpl::close_due(base::Timer& timer) {
  auto& self = *static_cast<DeviceImpl*>(timer.context);
  self.session_.home().schedule_after(timer, base::kSecond);
  if (!self.session_.path_up() || self.session_.needs_path_besides(self)) return;
  self.session_.drop_path(fmt::format("'{}' is being closed, and {} of its requests have no answer",
                                      self.options_.name, self.in_progress()));
}

/// What becomes of I/O while the device is not open.
std::string DeviceImpl::held_text() const {
  if (closing_)
    return fmt::format("it is being closed, {} requests are still to end", in_progress());
  if (gave_up_) return fmt::format("it gave up {}: I/O fails until it is back", gave_up_why_);
  std::string text = fmt::format("{} requests are held", in_progress() + waiting());
  if (give_up_timer_.pending()) {
    const uint64_t now_ns = session_.home().host().now_ns();
    const uint64_t due_ns = std::max(give_up_timer_.deadline_ns(), now_ns);
    text += fmt::format(" and fail in {} if it is not back by then", seconds_text(due_ns - now_ns));
  }
  return text;
}

std::string DeviceImpl::explain() const {
  const std::string held = held_text();
  switch (state()) {
    case RemoteState::kOpen: {
      std::string notes;
      if (ledger_.loss_unreported()) {
        notes +=
            "; the next flush will fail, because the server's machine restarted, or a flush "
            "failed there, with acknowledged writes not flushed";
      }
      if (info_.identity.empty()) {
        notes +=
            "; its server is not Braid's and tells no identity: another disk of the same "
            "size, writes lost in its restart, or another writer meanwhile would go unseen";
      }
      if (closing_) notes += "; " + held + " at the server";
      return fmt::format("'{}' is open at {}, {} requests in progress{}", options_.name,
                         session_.server_text(), in_progress(), notes);
    }
    case RemoteState::kPathDown:
      return fmt::format("'{}' waits for its path: {}; {}", options_.name, session_.explain(),
                         held);
    case RemoteState::kUnavailable:
      return fmt::format("'{}' cannot be opened at {}: {}; it is tried again, {}", options_.name,
                         session_.server_text(), why_, held);
    case RemoteState::kReplaced:
      return fmt::format("'{}' stays down until it is unmapped{}: {}; {}", options_.name,
                         shrank_ ? ", or mapped again as it is" : "", why_, held);
    case RemoteState::kRevoked:
      return fmt::format("'{}' waits to be mapped again or unmapped: {}; {}", options_.name, why_,
                         held);
    case RemoteState::kSuperseded:
      return fmt::format("'{}' fails all I/O until it is unmapped, what was held with it: {}",
                         options_.name, why_);
    case RemoteState::kLost:
      return fmt::format(
          "'{}' is lost and fails all I/O until it is unmapped; then it can be "
          "mapped again: {}",
          options_.name, why_);
    case RemoteState::kClosed:
      return fmt::format("'{}' is closed", options_.name);
  }
  return {};
}

uint64_t DeviceImpl::in_progress() const {
  uint64_t sum = 0;
  for (const auto& queue : queues_) sum += queue->in_progress();
  return sum;
}

uint64_t DeviceImpl::waiting() const {
  uint64_t sum = 0;
  for (const auto& queue : queues_) sum += queue->waiting();
  return sum;
}

BlockStatistics DeviceImpl::statistics() const {
  BlockStatistics sum;
  for (const auto& queue : queues_) sum.add(queue->statistics());
  return sum;
}

LatencyHistogram DeviceImpl::latency(LatencyKind kind) const {
  LatencyHistogram sum;
  for (const auto& queue : queues_) {
    if (const LatencyHistogram* const latency = queue->latency(kind)) sum.add(*latency);
  }
  return sum;
}

RemoteDeviceStatus DeviceImpl::status() const {
  RemoteDeviceStatus status;
  status.name = options_.name;
  status.server = session_.server_text();
  status.mode = wire::to_string(options_.mode);
  status.state = state();
  status.explanation = explain();
  status.info = info_;
  status.statistics = statistics();
  status.in_progress = static_cast<uint32_t>(in_progress());
  status.waiting = static_cast<uint32_t>(waiting());
  for (const auto& queue : queues_) {
    status.requests_by_reactor.push_back(queue->requests_sent());
    status.requests_sent += status.requests_by_reactor.back();
  }
  status.reopened = reopened_;
  status.losses = ledger_.losses();
  status.flushes_failed = ledger_.flushes_failed();
  status.give_up_after_ns = options_.give_up_after_ns;
  status.lost_after_ns = options_.lost_after_ns;
  status.gave_up = gave_up_;
  return status;
}

}  // namespace braid::bnbd::client
