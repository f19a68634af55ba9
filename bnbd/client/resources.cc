// What the devices of a session share: permits, copy buffers, the registration domain.
#include <algorithm>
#include <cstring>

#include "bnbd/client/device_impl.h"
#include "bnbd/client/session_impl.h"

namespace braid::bnbd::client {

using base::Result;

namespace {

constexpr uint64_t kBuffersMin = 2;
constexpr uint64_t kBuffersMax = 1024;
// Of memory that the server writes answers to.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

/// Registered memory of the session.
class RemoteRegion : public Region {
 public:
  RemoteRegion(std::unique_ptr<base::Segment> segment, std::unique_ptr<vhca::Mr> registration,
               trs::Domain& registered_in)
      : segment_(std::move(segment)), mr_(std::move(registration)), domain_(registered_in) {}
  /// Waits for nobody; the segment lives until the server has let go of it.
  ~RemoteRegion() override { domain_.release(std::move(mr_), std::move(segment_)); }
  std::byte* data() const override { return segment_->data(); }
  size_t size() const override { return segment_->size(); }
  const vhca::Mr* mr() const override { return mr_.get(); }
  const void* domain() const override { return &domain_; }

 private:
  std::shared_ptr<base::Segment> segment_;
  std::unique_ptr<vhca::Mr> mr_;
  trs::Domain& domain_;
};

/// Has every page there before I/O starts: memory may be short just when the kernel writes to us.
void touch(base::Segment& segment) {
  std::memset(segment.data(), 0, segment.size());
}

}  // namespace

base::Status SessionImpl::make_memory() {
  const uint64_t each = limits().max_io_bytes;
  const uint64_t count = std::clamp(options_.copy_pool_bytes / each, kBuffersMin, kBuffersMax);
  BRAID_TRY(memory_, home_.host().create_segment(count * each, "remote session"));
  touch(*memory_);
  BRAID_TRY(buffers_mr_, domain_->register_memory(memory_->data(), memory_->size(), kAccess));
  buffer_share_.set_total(static_cast<uint32_t>(count));
  permit_share_.set_total(limits().queue_depth - limits().admin_permits);
  for (uint64_t i = 0; i < count; ++i) {
    buffers_free_.push_back(memory_->data() + i * each);
  }
  return {};
}

Result<std::unique_ptr<Region>> SessionImpl::create_region(size_t size_bytes) {
  BRAID_TRY(auto segment, home_.host().create_segment(size_bytes, "block region"));
  touch(*segment);
  BRAID_TRY(auto mr, domain_->register_memory(segment->data(), segment->size(), kAccess));
  return std::unique_ptr<Region>(
      std::make_unique<RemoteRegion>(std::move(segment), std::move(mr), *domain_));
}

void SessionImpl::need_permit(DeviceImpl& device) {
  if (!device.has_work() || device.linked()) return;
  (device.permits_held() == 0 ? need_first_ : need_more_).push_back(device);
}

/// Permit by permit, device by device: who has more to send stands behind the others again.
void SessionImpl::serve() {
  for (;;) {
    DeviceImpl* device = need_first_.front();
    if (device == nullptr && permit_share_.may_take(1)) device = need_more_.front();
    if (device == nullptr) return;  // those left out hold a permit, and come here with its end
    trs::Permit permit = queue().acquire();
    if (!permit) {
      if (!permit_waiter_.linked()) queue().wait_for_permit(permit_waiter_);
      return;
    }
    device->unlink();
    if (device->send_one(std::move(permit))) need_permit(*device);
  }
}

void SessionImpl::permit_free(trs::PermitWaiter& waiter) {
  static_cast<SessionImpl*>(waiter.context)->serve();
}

std::byte* SessionImpl::take_buffer(uint32_t& held) {
  if (buffers_free_.empty() || !buffer_share_.may_take(held)) return nullptr;
  std::byte* const buffer = buffers_free_.back();
  buffers_free_.pop_back();
  buffer_share_.take(held);
  return buffer;
}

void SessionImpl::need_buffer(DeviceImpl& device) {
  need_buffer_.push_back(device);
}

/// All who wait try again: the first of them may have to leave this one to another.
void SessionImpl::give_buffer(std::byte* buffer, uint32_t& held) {
  buffers_free_.push_back(buffer);
  buffer_share_.give_back(held);
  while (DeviceImpl* waiter = need_buffer_.pop_front()) need_permit(*waiter);
}

}  // namespace braid::bnbd::client
