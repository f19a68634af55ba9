// Serves a BlockDevice to an NBD client in its transmission phase, on a reactor: to nbd.ko over
// socket pairs, or to any client that has been through the handshake.
//
// Each connection is a small state machine; partial reads and writes of a stream are its ordinary
// course. Requests of all connections share one pool of slots; a connection that finds none waits,
// and so does its client. Answers go out in the order in which the device completes.
//
// Threads: the reactor's, but for alive() and statistics().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/await.h"
#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/frontend/fd_handle.h"
#include "bnbd/frontend/nbd_wire.h"
#include "bnbd/frontend/request_slot.h"
#include "bnbd/kernel_device.h"

namespace braid::bnbd {

class NbdServer : private base::Poller {
  struct Connection;

 public:
  struct Slot : RequestSlot {
    NbdServer* server = nullptr;
    Connection* connection = nullptr;  // null: its connection has ended
    NbdVerdict verdict;
    NbdReply reply;
    size_t answer_bytes = 0;  // the reply and the payload of a good read
    size_t sent_bytes = 0;    // of those
  };
  /// One lives on without an owner until the device has completed what it was given.
  struct Release {
    void operator()(NbdServer* server) const;
  };
  using Ptr = std::unique_ptr<NbdServer, Release>;

  /// Takes connected stream sockets, one per connection.
  static base::Result<Ptr> create(base::Reactor& reactor, BlockDevice& device,
                                  const std::string& name, std::unique_ptr<SlotPool<Slot>> pool,
                                  std::vector<UniqueFd> sockets);
  NbdServer(const NbdServer&) = delete;
  NbdServer& operator=(const NbdServer&) = delete;

  /// Closes all connections; answers that were not sent are dropped. Idempotent.
  void stop();
  /// Whether the kernel is about to close the connections because we asked for it: then that is no
  /// event to warn of.
  void expect_end(bool expected) { end_expected_ = expected; }
  /// Returns once the device has completed everything.
  base::Task<void> drained();
  /// False once every connection has ended.
  bool alive() const { return base::read_shared(open_) != 0; }
  KernelDeviceStatistics statistics() const;
  uint64_t device_bytes() const { return device_.info().size_bytes; }

 private:
  struct Connection {
    enum class State : uint8_t {
      kHeader,   // receiving the 28 bytes of a request
      kWaiting,  // a whole request, no slot
      kPayload,  // receiving the payload of a write that will run
      kSkip,     // receiving the payload of a write that was refused
    };
    UniqueFd socket;  // invalid: the connection has ended
    State state = State::kHeader;
    bool readable = true;  // until the socket says no
    bool writable = true;
    std::array<std::byte, sizeof(NbdRequest)> header;
    size_t received_bytes = 0;  // of what the state receives
    Slot* incoming = nullptr;   // kPayload, kSkip
    base::IntrusiveList<Slot> answers;
  };

  NbdServer(base::Reactor& reactor, BlockDevice& device, const std::string& name,
            std::unique_ptr<SlotPool<Slot>> pool, UniqueFd epoll_fd, size_t connections);
  ~NbdServer() override;

  bool poll() override;
  bool arm() override;
  void look_at_sockets();
  bool has_work(const Connection& connection) const;

  // Each does one step. False: the socket says no for now, no slot is free, or it has ended.
  bool receive_step(Connection& connection);
  bool receive_header(Connection& connection);
  bool begin_request(Connection& connection);
  bool receive_payload(Connection& connection);
  bool send_step(Connection& connection);

  /// Up to `length` bytes; the number that came. 0: none now, or the connection has ended.
  size_t receive(Connection& connection, std::byte* to, size_t length);
  void run(Slot& slot);
  static void operation_done(DeviceOp& operation, base::Errc status);
  void answer(Slot& slot, uint32_t error);
  void release(Slot& slot);
  /// Ends a connection. `reason` is for the log; null for one that took its leave.
  void end(Connection& connection, const char* reason);

  base::Reactor& reactor_;
  BlockDevice& device_;
  const std::string name_;
  std::unique_ptr<SlotPool<Slot>> pool_;
  // Readable when a socket has become readable or writable: the reactor watches only this.
  FdHandle epoll_;
  base::Watch watch_;
  base::Signal completed_;
  std::vector<Connection> connections_;
  size_t open_ = 0;
  bool stopped_ = false;
  bool end_expected_ = false;
  bool released_ = false;
  KernelDeviceStatistics statistics_;
};

}  // namespace braid::bnbd
