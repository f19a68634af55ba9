// What a device's home says to its queues, and the end.
#include "bnbd/client/device_queue.h"

#include "bnbd/client/device_impl.h"

namespace braid::bnbd::client {

using base::Errc;

DeviceQueue::DeviceQueue(DeviceImpl& device, size_t index, SessionQueue& session,
                         DurabilityLedger& ledger, const RemoteDeviceOptions& options,
                         DeviceView view)
    : device_(device),
      index_(index),
      session_(session),
      reactor_(session.reactor()),
      ledger_(ledger),
      name_(options.name),
      log_(reactor_.log().child("remote").child("device")),
      view_(std::move(view)),
      told_early_(reactor_.host().mutant("told-early")),
      quiet_timer_(&DeviceQueue::quiet_due, this),
      ops_(options.queue_depth),
      parts_(options.queue_depth),
      deferred_(reactor_, statistics_) {}

DeviceQueue::Op* DeviceQueue::take_op() {
  Op* const op = free_ops_.pop_front();
  return op != nullptr ? op : ops_.make();
}

/// A free one, which stays where it is; or null.
DeviceQueue::Part* DeviceQueue::free_part() {
  if (!free_parts_.empty()) return free_parts_.front();
  Part* const part = parts_.make();
  if (part == nullptr) return nullptr;
  part->device = this;
  part->request.user_header = wire::bytes_of(part->message);
  part->request.context = part;
  part->request.done = &DeviceQueue::part_ended;
  free_parts_.push_back(*part);
  return part;
}

base::Result<std::unique_ptr<Region>> DeviceQueue::create_region(size_t size_bytes) {
  return device_.create_region(size_bytes);
}

void DeviceQueue::join() {
  session_.join();
  if (!session_.several()) meet();  // it works here or nowhere
}

void DeviceQueue::meet() {
  met_ = true;
  session_.meet();
}

void DeviceQueue::see(DeviceView view) {
  view_ = std::move(view);
  if (!quiet_) session_.need_permit(*this);
}

void DeviceQueue::address_held() {
  const uint32_t id = view_.open ? view_.id : wire::kNoDevice;
  for (Part& part : parts_) {
    if (!part.on_wire) continue;
    part.message.device_id = id;
    if (part.recall != Recall::kNone) continue;  // it ends in the next turn
    if (id == wire::kNoDevice || part.sent_bytes <= request_bytes_max(*part.op)) continue;
    part.recall = Recall::kCut;
    session_.transport().cancel(part.request);
  }
}

void DeviceQueue::fail_all(Errc held) {
  end_held(held);
  recall_all(Recall::kFails);
}

/// Ends an operation that is not on the wire any more in any part.
void DeviceQueue::drop(Op& op, Errc status) {
  if (op.status == Errc::kOk) op.status = status;
  op.issued_bytes = stage_bytes(op);
  op.ListNode::unlink();
  if (op.parts == 0) finish(op, op.status);
}

/// Ends what the transport does not have.
void DeviceQueue::end_held(Errc status) {
  while (BlockRequest* request = waiting_.pop_front()) {
    base::subtract_shared(waiting_count_, 1);
    deferred_.end(*request, status);
  }
  while (Part* part = retry_.pop_front()) {
    Op& op = *part->op;
    --op.parts;
    free_parts_.push_back(*part);
    drop(op, status);
  }
  while (Op* op = ready_.front()) drop(*op, status);
}

/// Takes back what the transport has and has not put on a wire; it ends in the next turn.
void DeviceQueue::recall_all(Recall why) {
  for (Part& part : parts_) {
    if (!part.on_wire) continue;
    part.recall = why;
    session_.transport().cancel(part.request);
  }
}

void DeviceQueue::begin_close() {
  closing_ = true;
  ListNode::unlink();
  end_held(Errc::kCanceled);
  recall_all(Recall::kNone);
  look_whether_quiet();
}

/// In a turn of its own: `done` of the last request is still to return.
void DeviceQueue::look_whether_quiet() {
  if (in_progress_ == 0) reactor_.schedule_after(quiet_timer_, 0);
}

void DeviceQueue::quiet_due(base::Timer& timer) {
  auto& self = *static_cast<DeviceQueue*>(timer.context);
  if (self.in_progress_ > 0 || self.quiet_) return;
  // Requests that were refused end in a turn of their own, which tells nobody.
  if (!self.deferred_.empty()) return self.look_whether_quiet();
  self.quiet_ = true;
  self.ListNode::unlink();
  self.session_.leave(self.met_);
  base::Reactor& home = self.device_.home();
  if (&home == &self.reactor_) return self.device_.queue_quiet();
  // By a message to itself: when the home hears of it nothing here stands on this object any more
  // but what shares it.
  self.reactor_.post([self = self.shared_from_this(), &home] {
    home.post([self] { self->device_.queue_quiet(); });
  });
}

}  // namespace braid::bnbd::client
