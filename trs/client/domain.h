// Domain: memory registered with several devices. Private to trs/client; trs/client.h has the
// interface. Queues read the keys of what they are given, without a lock.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "trs/client.h"

namespace braid::trs::client {

class DomainImpl;

/// One stretch of memory; as an Mr it has the keys of device 0.
class Memory final : public vhca::Mr, public base::ListNode {
 public:
  /// Keys by device. For a plain Mr, which is of device 0, use its own.
  static uint32_t lkey_of(const vhca::Mr& mr, size_t device) {
    return device == 0 ? mr.lkey : static_cast<const Memory&>(mr).others_[device]->lkey;
  }
  static uint32_t rkey_of(const vhca::Mr& mr, size_t device) {
    return device == 0 ? mr.rkey : static_cast<const Memory&>(mr).others_[device]->rkey;
  }

 private:
  friend class DomainImpl;
  std::array<std::unique_ptr<vhca::Mr>, Domain::kDevicesMax> others_;  // by device, the first too
};

class DomainImpl final : public Domain {
 public:
  base::Result<size_t> add_device(vhca::Device& device) override;
  size_t devices() const override { return count_.load(std::memory_order_acquire); }
  // Any thread.
  vhca::Device& device(size_t index) override { return *devices_.at(index).device; }
  vhca::Pd& pd(size_t index) override { return *devices_.at(index).pd; }
  base::Result<std::unique_ptr<vhca::Mr>> register_memory(std::byte* address, uint64_t length_bytes,
                                                          int access) override;
  void release(std::unique_ptr<vhca::Mr> registered, std::shared_ptr<void> memory) override;

 private:
  struct Member {
    vhca::Device* device = nullptr;
    std::unique_ptr<vhca::Pd> pd;
  };
  base::Status register_with_rest(Memory& memory, size_t& done) const;

  std::array<Member, kDevicesMax> devices_;  // below count_ they stay as they are
  std::atomic<size_t> count_{0};
  std::mutex mutex_;  // what is in the list is registered with the devices below count_
  base::IntrusiveList<Memory> memories_;
};

}  // namespace braid::trs::client
