// Serves one BlockDevice as one file of a FUSE session, on a reactor.
//
//   kernel  --read-->   slot: | ... in_header write_in | payload |  --DeviceOp-->  BlockDevice
//           <-writev--  out_header | payload (slot's or the device's own) |        <-- done
//
// The payload of a write lands in the slot's registered memory and goes to the device from there;
// a read is answered from where the device put it. So the only copies are the kernel's, between
// its pages and ours.
//
// The session has a root directory and one file, "disk". Requests that find every slot taken stay
// in the kernel. Threads: the reactor's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/await.h"
#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/frontend/fd_handle.h"
#include "bnbd/frontend/quiet_moment.h"
#include "bnbd/frontend/slot_pool.h"
#include "bnbd/kernel_device.h"

struct fuse_session;
struct fuse_req;

namespace braid::bnbd {

class FuseServer : private base::Poller {
 public:
  struct Slot : RequestSlot {
    FuseServer* server = nullptr;
    fuse_req* request = nullptr;  // null: unused, or answered because the session ended
    size_t received_bytes = 0;    // of the request, header included
  };
  /// One lives on without an owner until the device has completed what it was given.
  struct Release {
    void operator()(FuseServer* server) const;
  };
  using Ptr = std::unique_ptr<FuseServer, Release>;

  /// Takes the descriptor of /dev/fuse on which the file system was made. `file_name` is the one
  /// entry of the root directory.
  static base::Result<Ptr> create(base::Reactor& reactor, BlockDevice& device,
                                  const std::string& file_name,
                                  std::unique_ptr<SlotPool<Slot>> pool, UniqueFd fuse_fd);
  FuseServer(const FuseServer&) = delete;
  FuseServer& operator=(const FuseServer&) = delete;

  /// Ends the session: requests in flight are answered with EIO, the kernel fails all that follow.
  /// Idempotent.
  void stop();
  /// Whether the kernel is about to end the session because we asked for it: then that is no event
  /// to warn of.
  void expect_end(bool expected) { end_expected_ = expected; }
  /// Returns once the device has completed everything.
  base::Task<void> drained();
  /// False once the session has ended.
  bool alive() const { return session_ != nullptr; }
  KernelDeviceStatistics statistics() const;
  uint64_t device_bytes() const { return device_.info().size_bytes; }
  /// Of a slot: the kernel splits what is longer, and has several pieces under way. As fast as
  /// 1 MiB, and a quarter of the memory, which mapping a disk waits for.
  static constexpr uint32_t kPayloadMax = 256 << 10;
  /// The largest transfer, for the option max_read of the mount.
  static uint32_t max_read_bytes(const BlockInfo& info) {
    return slot_payload_bytes(info, kPayloadMax);
  }

 private:
  // struct fuse_in_header and struct fuse_write_in: what the kernel puts before a write's payload.
  // Requests without payload are received into the same place, over the payload.
  static constexpr size_t kWriteHeadBytes = 80;
  static_assert(kWriteHeadBytes < kSlotHeadBytes);

  friend struct FuseCallbacks;  // libfuse's
  FuseServer(base::Reactor& reactor, BlockDevice& device, const std::string& file_name,
             std::unique_ptr<SlotPool<Slot>> pool, UniqueFd epoll_fd);
  ~FuseServer() override;
  base::Status start_session(UniqueFd fuse_fd);
  /// Off: each turn of the reactor looks, as there may be more. A disk that is idle costs no turn.
  void watch_kernel(bool on);

  bool poll() override;
  bool arm() override { return !readable_ || pool_->empty(); }
  /// Reads one request into the slot and runs it. False: nothing to read, or the session ended.
  bool receive(Slot& slot);
  void end_session(int why);
  /// Marks the slot of the request being run as kept until its operation is done.
  Slot& keep_slot(fuse_req* request);
  void run(Slot& slot, BlockOp op, uint64_t offset_bytes, uint64_t length_bytes);
  static void operation_done(DeviceOp& operation, base::Errc status);
  void answer(Slot& slot, base::Errc status);
  void refuse(fuse_req* request, int sys_errno);

  base::Reactor& reactor_;
  BlockDevice& device_;
  const std::string file_name_;
  std::unique_ptr<SlotPool<Slot>> pool_;
  fuse_session* session_ = nullptr;  // null once the session has ended
  int fuse_fd_ = -1;                 // the session's, which closes it
  // Readable when the session is. The reactor's ring must not watch the session itself: it would
  // hold on to its file when this process is killed, and the file's last close is what fails the
  // requests that the exit waits for (docs/front-ends.md).
  FdHandle epoll_;
  base::Watch watch_;
  base::Signal completed_;
  Slot* current_ = nullptr;  // whose request libfuse is looking at
  bool kept_ = false;        // it stays taken
  bool readable_ = false;    // the kernel may have requests: read until it says no
  bool starved_ = false;     // counted: the last look found no slot
  bool watching_ = false;    // the reactor tells when it has; else it polls us each turn
  QuietMoment quiet_;        // nothing was to be read
  bool end_expected_ = false;
  bool released_ = false;  // without an owner: goes with the last request
  KernelDeviceStatistics statistics_;
};

}  // namespace braid::bnbd
