#include "vhca/ibv/cq.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "vhca/ibv/device.h"
#include "vhca/ibv/words.h"

namespace braid::vhca::ibv {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

/// Owns its descriptor.
class OwnedHandle final : public base::Handle {
 public:
  explicit OwnedHandle(int fd) : fd_(fd) {}
  ~OwnedHandle() override { ::close(fd_); }
  int fd() const override { return fd_; }
  Result<std::unique_ptr<base::Handle>> duplicate() const override {
    return BorrowedHandle(fd_).duplicate();
  }

 private:
  const int fd_;
};

Status check_capacity(const IbvDevice& device, int capacity) {
  const int max = device.query().max_cqe;
  if (capacity >= 1 && capacity <= max) return base::ok_status();
  return make_error(Errc::kInvalid, "a CQ of {} completions; {} has room for 1 to {}", capacity,
                    device.info().name, max);
}

}  // namespace

Result<std::unique_ptr<base::Handle>> BorrowedHandle::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return base::sys_error(errno, "duplicating a descriptor of an RDMA device");
  return std::unique_ptr<base::Handle>(std::make_unique<OwnedHandle>(copy));
}

Status set_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) return base::ok_status();
  return base::sys_error(errno, "making a descriptor of an RDMA device non-blocking");
}

// --- IbvCompChannel

Result<std::unique_ptr<IbvCompChannel>> IbvCompChannel::create(
    std::shared_ptr<const Library> library, ibv_context* context) {
  ibv_comp_channel* const raw = library->verbs.create_comp_channel(context);
  if (raw == nullptr) return verbs_error(errno, "creating a completion channel");
  std::unique_ptr<IbvCompChannel> channel(new IbvCompChannel(std::move(library), raw));
  BRAID_CHECK(set_non_blocking(raw->fd));
  return channel;
}

IbvCompChannel::~IbvCompChannel() {
  BRAID_ASSERT(events_.empty());
  (void)library_->verbs.destroy_comp_channel(channel_);
}

/// Takes what the kernel has; lock_ is held. Acknowledged at once: the CQ cannot go meanwhile.
void IbvCompChannel::fetch() {
  ibv_cq* raw = nullptr;
  void* context = nullptr;
  while (library_->verbs.get_cq_event(channel_, &raw, &context) == 0) {
    library_->verbs.ack_cq_events(raw, 1);
    auto* const cq = static_cast<IbvCq*>(context);
    if (!cq->linked()) events_.push_back(*cq);
  }
}

bool IbvCompChannel::consume() {
  const std::lock_guard guard(lock_);
  fetch();
  return signalled_.exchange(false, std::memory_order_relaxed) || !events_.empty();
}

Cq* IbvCompChannel::next_event() {
  const std::lock_guard guard(lock_);
  if (events_.empty()) fetch();
  return events_.pop_front();
}

void IbvCompChannel::unlink(IbvCq& cq) {
  cq.unlink();
}

// --- IbvCq

Result<std::unique_ptr<Cq>> IbvCq::create(IbvDevice& device, const CqOptions& options) {
  BRAID_CHECK(check_capacity(device, options.capacity));
  auto* const channel = static_cast<IbvCompChannel*>(options.channel);
  std::unique_ptr<IbvCq> cq(new IbvCq(device, channel, options.td != nullptr));
  cq->cq_ = device.library().verbs.create_cq(device.verbs(), options.capacity, cq.get(),
                                             channel != nullptr ? channel->verbs() : nullptr, 0);
  if (cq->cq_ == nullptr) {
    return verbs_error(errno, fmt::format("creating a CQ of {} completions", options.capacity));
  }
  return std::unique_ptr<Cq>(std::move(cq));
}

IbvCq::~IbvCq() {
  if (cq_ == nullptr) return;
  const auto destroy = [this] {
    device_.forget_events<Cq>(&AsyncEvent::cq, *this, [this] {
      // A QP that is still there would be a bug of its owner.
      BRAID_ASSERT(device_.library().verbs.destroy_cq(cq_) != EBUSY);
    });
  };
  if (channel_ != nullptr) {
    channel_->forget(*this, destroy);
  } else {
    destroy();
  }
}

int IbvCq::poll(std::span<Wc> out) {
  int count = 0;
  if (one_thread_) {
    count = has_kept_.load(std::memory_order_relaxed) ? poll_kept(out) : poll_device(out);
  } else {
    polling_.fetch_add(1, std::memory_order_seq_cst);
    const bool kept = has_kept_.load(std::memory_order_seq_cst);
    if (!kept) count = poll_device(out);
    polling_.fetch_sub(1, std::memory_order_release);
    if (kept) [[unlikely]]
      count = poll_kept(out);
  }
  if (count > 0) [[likely]]
    return count;
  return count < 0 || overrun_.load(std::memory_order_relaxed) ? -1 : 0;
}

/// Failures are told before drop_completions() can go on, so that none is told later than what it
/// drops for.
int IbvCq::poll_device(std::span<Wc> out) {
  const int count = ibv_poll_cq(cq_, static_cast<int>(out.size()), out.data());
  if (count > 0) note_failures(out.first(static_cast<size_t>(count)));
  return count;
}

/// A completion with an error says that the device has put its QP in ERR.
void IbvCq::note_failures(std::span<const Wc> polled) {
  for (const Wc& wc : polled) {
    if (wc.status != IBV_WC_SUCCESS) [[unlikely]]
      device_.qp_failed(wc.qp_num);
  }
}

int IbvCq::poll_kept(std::span<Wc> out) {
  const std::lock_guard guard(kept_lock_);
  if (kept_.empty()) return poll_device(out);  // another poll has taken all
  const size_t count = std::min(out.size(), kept_.size());
  std::copy_n(kept_.begin(), count, out.begin());
  note_failures(out.first(count));
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(count));
  has_kept_.store(!kept_.empty(), std::memory_order_release);
  return static_cast<int>(count);
}

Status IbvCq::resize(int capacity) {
  BRAID_CHECK(check_capacity(device_, capacity));
  const int err = std::abs(device_.library().verbs.resize_cq(cq_, capacity));
  if (err == 0) return base::ok_status();
  return verbs_error(
      err, fmt::format("giving a CQ of {} completions room for {}", this->capacity(), capacity));
}

void IbvCq::arm(bool solicited_only) {
  // Fails only if the device is gone; then polls fail too.
  (void)ibv_req_notify_cq(cq_, solicited_only ? 1 : 0);
}

void IbvCq::drop_completions(uint32_t qp_number) {
  const std::lock_guard guard(kept_lock_);
  has_kept_.store(true, std::memory_order_seq_cst);
  while (polling_.load(std::memory_order_seq_cst) != 0) device_.host().yield();
  std::erase_if(kept_, [&](const Wc& wc) { return wc.qp_num == qp_number; });
  std::array<Wc, 16> burst;
  int count = 0;
  while ((count = ibv_poll_cq(cq_, static_cast<int>(burst.size()), burst.data())) > 0) {
    std::copy_if(burst.begin(), burst.begin() + count, std::back_inserter(kept_),
                 [&](const Wc& wc) { return wc.qp_num != qp_number; });
  }
  has_kept_.store(!kept_.empty(), std::memory_order_release);
}

}  // namespace braid::vhca::ibv
