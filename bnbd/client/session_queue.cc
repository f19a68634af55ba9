#include "bnbd/client/session_queue.h"

#include "bnbd/client/device_queue.h"

namespace braid::bnbd::client {

SessionQueue::SessionQueue(base::Reactor& reactor, trs::ClientQueue& transport,
                           const trs::Domain& domain, const Buffers& buffers, bool several)
    : reactor_(reactor),
      transport_(transport),
      domain_(domain),
      buffers_mr_(buffers.mr),
      all_reads_copied_(buffers.all_reads),
      several_(several) {
  for (uint64_t i = 0; i < buffers.count; ++i) {
    buffers_free_.push_back(buffers.first + i * buffers.each_bytes);
  }
  buffer_share_.set_total(buffers.count);
  permit_share_.set_total(transport.permits());
  permit_waiter_.permit_free = &SessionQueue::permit_free;
  permit_waiter_.context = this;
}

void SessionQueue::join() {
  permit_share_.join();
  buffer_share_.join();
  count_permits();
}

void SessionQueue::meet() {
  permit_share_.meet();
  buffer_share_.meet();
}

void SessionQueue::leave(bool met) {
  permit_share_.leave(met);
  buffer_share_.leave(met);
  count_permits();
}

void SessionQueue::need_permit(DeviceQueue& device) {
  if (!device.has_work() || device.linked()) return;
  (device.permits_held() == 0 ? need_first_ : need_more_).push_back(device);
}

/// Loans come and go.
void SessionQueue::count_permits() {
  if (!several_) return;
  permit_share_.set_total(transport_.permits());
  transport_.set_reserve(permit_share_.reserve());
}

/// Permit by permit, device by device: who has more to send stands behind the others again.
void SessionQueue::serve() {
  for (;;) {
    count_permits();
    DeviceQueue* device = need_first_.front();
    const bool first = device != nullptr;
    if (!first && permit_share_.may_take(1)) device = need_more_.front();
    trs::Permit permit;
    if (device != nullptr) permit = first ? transport_.acquire_first() : transport_.acquire();
    if (!permit) {
      if (several_) return wait_with_others();
      // Those left out hold a permit, and come here with its end.
      if (device != nullptr && !permit_waiter_.linked()) transport_.wait_for_permit(permit_waiter_);
      return;
    }
    device->unlink();
    if (device->send_one(std::move(permit))) need_permit(*device);
  }
}

/// Those left out would have more if another reactor lent some, whatever is kept here.
void SessionQueue::wait_with_others() {
  permit_waiter_.users = devices_waiting();
  permit_waiter_.leaves = need_first_.empty() ? permit_share_.reserve() : 0;
  if (permit_waiter_.users == 0) {
    permit_waiter_.unlink();
  } else if (!permit_waiter_.linked()) {
    transport_.wait_for_permit(permit_waiter_);
  }
}

uint32_t SessionQueue::devices_waiting() {
  uint32_t count = 0;
  for (auto* list : {&need_first_, &need_more_}) {
    for (DeviceQueue* d = list->front(); d != nullptr; d = list->next(*d)) ++count;
  }
  return count;
}

void SessionQueue::permit_free(trs::PermitWaiter& waiter) {
  static_cast<SessionQueue*>(waiter.context)->serve();
}

std::byte* SessionQueue::take_buffer(uint32_t& held) {
  if (buffers_free_.empty() || !buffer_share_.may_take(held)) return nullptr;
  std::byte* const buffer = buffers_free_.back();
  buffers_free_.pop_back();
  buffer_share_.take(held);
  return buffer;
}

void SessionQueue::need_buffer(DeviceQueue& device) {
  need_buffer_.push_back(device);
}

/// All who wait try again: the first of them may have to leave this one to another.
void SessionQueue::give_buffer(std::byte* buffer, uint32_t& held) {
  buffers_free_.push_back(buffer);
  buffer_share_.give_back(held);
  while (DeviceQueue* waiter = need_buffer_.pop_front()) need_permit(*waiter);
}

}  // namespace braid::bnbd::client
