// Completion queues and channels of an RDMA device. Private to vhca/ibv.
//
// Threads: any. The device's own lock serialises polls; ours guard the control side only.
// Lock order: IbvCompChannel::lock_ > IbvCq::kept_lock_ > those of the device and of its QPs.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/host.h"
#include "base/intrusive_list.h"
#include "vhca/device.h"
#include "vhca/ibv/library.h"

namespace braid::vhca::ibv {

class IbvCq;
class IbvDevice;

/// A descriptor that another object owns.
class BorrowedHandle final : public base::Handle {
 public:
  explicit BorrowedHandle(int fd) : fd_(fd) {}
  int fd() const override { return fd_; }
  base::Result<std::unique_ptr<base::Handle>> duplicate() const override;

 private:
  const int fd_;
};

/// Makes reads of a descriptor return at once.
base::Status set_non_blocking(int fd);

/// The channel is its own event: readable while the kernel has news.
class IbvCompChannel final : public CompChannel, private base::Event {
 public:
  static base::Result<std::unique_ptr<IbvCompChannel>> create(
      std::shared_ptr<const Library> library, ibv_context* context);
  ~IbvCompChannel() override;

  base::Event& event() override { return *this; }
  Cq* next_event() override;

  ibv_comp_channel* verbs() { return channel_; }
  /// Runs `destroy` while no event of the CQ can be taken, and forgets those that were.
  template <typename Destroy>
  void forget(IbvCq& cq, Destroy destroy) {
    const std::lock_guard guard(lock_);
    unlink(cq);
    destroy();
  }

 private:
  IbvCompChannel(std::shared_ptr<const Library> library, ibv_comp_channel* channel)
      : library_(std::move(library)), channel_(channel), handle_(channel->fd) {}
  // base::Event. Only the device signals; signal() marks it for the next consume().
  void signal() override { signalled_.store(true, std::memory_order_relaxed); }
  bool consume() override;
  const base::Handle& handle() const override { return handle_; }
  void fetch();
  static void unlink(IbvCq& cq);

  const std::shared_ptr<const Library> library_;
  ibv_comp_channel* const channel_;
  const BorrowedHandle handle_;
  std::atomic<bool> signalled_{false};
  std::mutex lock_;
  base::IntrusiveList<IbvCq> events_;  // taken from the kernel, not given out; lock_
};

class IbvCq final : public Cq, public base::ListNode {
 public:
  static base::Result<std::unique_ptr<Cq>> create(IbvDevice& device, const CqOptions& options);
  ~IbvCq() override;

  int poll(std::span<Wc> out) override;
  void arm(bool solicited_only) override;
  /// Events were acknowledged to the kernel when they were taken, so that destroying waits for no
  /// user.
  void ack_events(unsigned count) override { (void)count; }
  int capacity() const override { return cq_->cqe; }
  base::Status resize(int capacity) override;

  ibv_cq* verbs() { return cq_; }
  bool one_thread() const { return one_thread_; }
  /// Drops the completions of a QP that is destroyed or reset: drivers may leave them.
  void drop_completions(uint32_t qp_number);
  /// The device said that it had no room for a completion.
  void set_overrun() { overrun_.store(true, std::memory_order_relaxed); }

 private:
  IbvCq(IbvDevice& device, IbvCompChannel* channel, bool one_thread)
      : device_(device), channel_(channel), one_thread_(one_thread) {}
  int poll_device(std::span<Wc> out);
  int poll_kept(std::span<Wc> out);
  void note_failures(std::span<const Wc> polled);

  IbvDevice& device_;
  IbvCompChannel* const channel_;
  ibv_cq* cq_ = nullptr;
  std::atomic<bool> overrun_{false};
  const bool one_thread_;
  // What drop_completions() keeps comes before what the device has: it waits for the polls that did
  // not see has_kept_, and all later ones go by kept_lock_. Not counted if one thread does both.
  std::atomic<bool> has_kept_{false};
  std::atomic<uint32_t> polling_{0};
  std::mutex kept_lock_;
  std::vector<Wc> kept_;  // polled while a QP went, and not its; kept_lock_
};

}  // namespace braid::vhca::ibv
