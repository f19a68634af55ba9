// A remote device's life: open, path down, unavailable, replaced, closed.
#include <algorithm>

#include "bnbd/client/device_impl.h"
#include "bnbd/client/reopen.h"

namespace braid::bnbd::client {

using base::Errc;

DeviceImpl::DeviceImpl(SessionImpl& session, uint64_t serial, RemoteDeviceOptions options,
                       const wire::OpenedDevice& opened)
    : session_(session),
      serial_(serial),
      options_(std::move(options)),
      log_(session.log().child("device")),
      ops_(options_.queue_depth),
      parts_(options_.queue_depth),
      idle_(std::make_shared<base::Signal>(session.home())),
      deferred_(session.home(), statistics_) {
  take_over(opened);
  for (Op& op : ops_) free_ops_.push_back(op);
  for (Part& part : parts_) {
    part.device = this;
    part.request.user_header = wire::bytes_of(part.message);
    part.request.context = &part;
    part.request.done = &DeviceImpl::part_ended;
    free_parts_.push_back(part);
  }
}

DeviceImpl::~DeviceImpl() {
  if (state_ != RemoteState::kClosed) session_.forget(*this);
}

void DeviceImpl::set_state(RemoteState state, std::string why) {
  if (state_ != state) {
    log_.info("{}: {} -> {}{}{}", options_.name, to_string(state_), to_string(state),
              why.empty() ? "" : ": ", why);
  }
  state_ = state;
  why_ = std::move(why);
}

/// Adopts what the server says of the device.
void DeviceImpl::take_over(const wire::OpenedDevice& opened) {
  device_id_ = opened.device_id;
  server_fua_ = opened.force_unit_access || !opened.write_cache;
  server_max_io_bytes_ = std::min(opened.max_io_bytes, session_.limits().max_io_bytes);
  info_ = describe(opened, options_.mode == wire::AccessMode::kReadOnly, options_.queue_depth,
                   options_.max_io_bytes);
}

void DeviceImpl::path_lost() {
  if (state_ == RemoteState::kOpen || state_ == RemoteState::kUnavailable) {
    set_state(RemoteState::kPathDown, "");
  }
  if (closing_) cancel_on_wire();
}

void DeviceImpl::reopened(const wire::OpenedDevice& opened) {
  const ReopenVerdict verdict = judge_reopen(info_, opened);
  if (verdict.replaced) {
    device_id_ = 0;
    return set_state(RemoteState::kReplaced, verdict.why);
  }
  ++reopened_;
  if (verdict.restarted && ledger_.restarted()) {
    log_.error(
        "{}: the server's machine restarted while acknowledged writes were not flushed; the "
        "next flush will fail",
        options_.name);
  }
  if (opened.size_bytes > info_.size_bytes) {
    log_.info("{}: grew from {} to {} bytes", options_.name, info_.size_bytes, opened.size_bytes);
  }
  take_over(opened);
  set_state(RemoteState::kOpen, "");
  session_.need_permit(*this);
}

void DeviceImpl::refused(const base::Error& why) {
  device_id_ = 0;
  set_state(RemoteState::kUnavailable, why.message());
  // A disk that is slow may answer at any moment.
  const bool slow = why.code() == Errc::kTimedOut;
  session_.reopen_later(slow ? session_.reopen_delay_ns() / 8 : session_.reopen_delay_ns());
}

void DeviceImpl::path_restored() {
  const uint32_t id = state_ == RemoteState::kOpen ? device_id_ : 0;
  for (Part& part : parts_) {
    if (!part.on_wire) continue;
    part.message.device_id = id;
    if (id == 0 || part.sent_bytes <= request_bytes_max(*part.op)) continue;
    part.recalled = true;
    session_.queue().cancel(part.request);
  }
}

/// Ends an operation that is not on the wire any more in any part.
void DeviceImpl::drop(Op& op) {
  if (op.status == Errc::kOk) op.status = Errc::kCanceled;
  op.issued_bytes = stage_bytes(op);
  op.ListNode::unlink();
  if (op.parts == 0) finish(op, op.status);
}

void DeviceImpl::cancel_all() {
  while (BlockRequest* request = waiting_.pop_front()) {
    --waiting_count_;
    deferred_.end(*request, Errc::kCanceled);
  }
  while (Part* part = retry_.pop_front()) {
    Op& op = *part->op;
    --op.parts;
    free_parts_.push_back(*part);
    drop(op);
  }
  while (Op* op = ready_.front()) drop(*op);
  cancel_on_wire();
}

void DeviceImpl::cancel_on_wire() {
  for (Part& part : parts_) {
    if (part.on_wire) session_.queue().cancel(part.request);
  }
}

base::Task<void> DeviceImpl::close() {
  BRAID_ASSERT(!closing_);
  const std::shared_ptr<base::Signal> idle = idle_;
  closing_ = true;
  ListNode::unlink();
  const bool open_at_server = state_ == RemoteState::kOpen;
  const uint32_t id = device_id_;
  cancel_all();
  // `done` of a refused request runs in a turn of its own and does not wake us: look again.
  while (!quiet()) {
    if (in_progress_ > 0) {
      co_await idle->wait();
    } else {
      co_await session_.home().sleep_ns(0);
    }
  }
  if (open_at_server && session_.path_up() && id == device_id_) co_await session_.send_close(id);
  set_state(RemoteState::kClosed, "closed by its user");
  session_.forget(*this);
}

std::string DeviceImpl::explain() const {
  const std::string held = fmt::format("{} requests are held", in_progress_ + waiting_count_);
  switch (state_) {
    case RemoteState::kOpen: {
      std::string notes;
      if (ledger_.loss_unreported()) {
        notes +=
            "; the next flush will fail, because the server's machine restarted with "
            "acknowledged writes not flushed";
      }
      if (info_.identity.empty()) {
        notes +=
            "; its server is not Braid's and tells no identity: another disk of the same "
            "size, or writes lost in its restart, would go unseen";
      }
      return fmt::format("'{}' is open at {}, {} requests in progress{}", options_.name,
                         session_.server_text(), in_progress_, notes);
    }
    case RemoteState::kPathDown:
      return fmt::format("'{}' waits for its path: {}; {} and go on when it is back", options_.name,
                         session_.explain(), held);
    case RemoteState::kUnavailable:
      return fmt::format("'{}' cannot be opened at {}: {}; it is tried again, {}", options_.name,
                         session_.server_text(), why_, held);
    case RemoteState::kReplaced:
      return fmt::format("'{}' stays down: {}; {} until it is unmapped, and fail then",
                         options_.name, why_, held);
    case RemoteState::kClosed:
      return fmt::format("'{}' is closed", options_.name);
  }
  return {};
}

RemoteDeviceStatus DeviceImpl::status() const {
  RemoteDeviceStatus status;
  status.name = options_.name;
  status.server = session_.server_text();
  status.mode = wire::to_string(options_.mode);
  status.state = state_;
  status.explanation = explain();
  status.info = info_;
  status.statistics = statistics_;
  status.in_progress = in_progress_;
  status.waiting = waiting_count_;
  status.requests_sent = requests_sent_;
  status.reopened = reopened_;
  status.losses = ledger_.losses();
  status.flushes_failed = ledger_.flushes_failed();
  return status;
}

}  // namespace braid::bnbd::client
