// SessionQueue: one reactor's part of a remote session: which of its devices gets the next permit,
// and its copy buffers (docs/client-reactors.md).
//
// A permit goes first to a device that holds none here, then round the others. Of several reactors
// each keeps some free for those who hold none; the rest is lent and borrowed by TRS.
//
// Thread: its reactor's, from join() on.
#pragma once

#include <memory>
#include <vector>

#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/client/fair_share.h"
#include "trs/client.h"

namespace braid::bnbd::client {

class DeviceQueue;

class SessionQueue {
 public:
  /// Registered memory for payloads that lie elsewhere.
  struct Buffers {
    std::byte* first = nullptr;
    uint64_t each_bytes = 0;
    uint32_t count = 0;
    const vhca::Mr* mr = nullptr;
    bool all_reads = false;  // the server may write nowhere else
  };
  /// `several`: its session has other queues. On any thread, before anybody uses it.
  SessionQueue(base::Reactor& reactor, trs::ClientQueue& transport, const trs::Domain& domain,
               const Buffers& buffers, bool several);

  base::Reactor& reactor() { return reactor_; }
  trs::ClientQueue& transport() { return transport_; }
  /// A device comes; it has its first request, and is `met`; it goes, and holds nothing any more.
  void join();
  void meet();
  void leave(bool met);
  bool several() const { return several_; }
  /// The device has something to send: it gets permits in its turn.
  void need_permit(DeviceQueue& device);
  /// Hands out the permits that are free.
  void serve();
  FairShare& permit_share() { return permit_share_; }
  /// A registered buffer of max_io_bytes for a device that holds `held`, or null; then
  /// need_buffer() has it try again.
  std::byte* take_buffer(uint32_t& held);
  void need_buffer(DeviceQueue& device);
  void give_buffer(std::byte* buffer, uint32_t& held);
  const vhca::Mr* buffer_mr() const { return buffers_mr_; }
  /// Whether a request's buffer may be used as it is.
  bool takes(const BlockRequest& request) const {
    if (all_reads_copied_ && request.op == BlockOp::kRead) return false;
    return request.buffer.region != nullptr && request.buffer.region->domain() == &domain_;
  }

 private:
  static void permit_free(trs::PermitWaiter& waiter);
  void count_permits();
  uint32_t devices_waiting();
  void wait_with_others();

  base::Reactor& reactor_;
  trs::ClientQueue& transport_;
  const trs::Domain& domain_;
  const vhca::Mr* const buffers_mr_;
  const bool all_reads_copied_;
  const bool several_;
  std::vector<std::byte*> buffers_free_;
  FairShare permit_share_;
  FairShare buffer_share_;
  base::IntrusiveList<DeviceQueue> need_first_;  // has something to send, and no permit
  base::IntrusiveList<DeviceQueue> need_more_;   // the same, with permits
  base::IntrusiveList<DeviceQueue> need_buffer_;
  trs::PermitWaiter permit_waiter_;
};

}  // namespace braid::bnbd::client
