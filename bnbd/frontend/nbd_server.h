// Serves a BlockDevice to NBD clients in their transmission phase, on a reactor: to nbd.ko over
// socket pairs, or to any client that has been through the handshake (bnbd/nbd_service.h).
//
// Each connection is a small state machine; partial reads and writes of a stream are its ordinary
// course. Requests of all connections share one pool of slots; a connection that finds none waits,
// and so does its client. Answers go out in the order in which the device completes. A request that
// is longer than a slot has one all the same, and is done part by part: received, or sent, when the
// part before is done. What a request costs in system calls, and when the sockets are polled or
// watched: docs/nbd-server.md.
//
// Threads: the reactor's, but for alive(), connections(), leaving(), statistics() and latency().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/await.h"
#include "base/limited_log.h"
#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/frontend/fd_handle.h"
#include "bnbd/frontend/nbd_input.h"
#include "bnbd/frontend/nbd_wire.h"
#include "bnbd/frontend/quiet_moment.h"
#include "bnbd/frontend/slot_pool.h"
#include "bnbd/frontend/slot_shares.h"
#include "bnbd/kernel_device.h"

namespace braid::bnbd {

struct NbdServerOptions {
  std::string name;        // of the device, for the log
  bool read_only = false;  // whatever the device allows
  bool latencies = false;  // NbdServer::latency() counts
  /// Connections that there may be at once; each is sure of a part of the slots. 0: those that it
  /// is made with, which are of one kernel device and share as they like.
  unsigned connections_max = 0;
  /// How long a client that takes its leave may take none of the answers that are ready for it.
  uint64_t linger_ns = 2 * base::kSecond;
};

class NbdServer : private base::Poller {
  struct Connection;

 public:
  struct Slot : RequestSlot {
    NbdServer* server = nullptr;
    Connection* connection = nullptr;  // null: its connection has ended
    NbdVerdict verdict;
    uint64_t began_ns = 0;                // if latencies are counted
    uint64_t done_bytes = 0;              // by the device: of what is done part by part
    base::Errc status = base::Errc::kOk;  // of a write of which a part has failed
    bool at_device = false;               // a write's part, and more are to come
    bool more = false;                    // of a read: what is to be sent is not its last part
    bool streams = false;                 // its simple reply has begun: only data follow
    bool outlives = false;                // goes on to its end though its connection has ended
    bool failed_flush = false;
    NbdAnswerHead head;
    size_t answer_bytes = 0;  // the head and the payload of a good read; of its present part
    size_t sent_bytes = 0;    // of those
    /// Its payload, or what is left of it, is received for nobody.
    bool skips() const {
      return verdict.kind != NbdVerdict::Kind::kRun || status != base::Errc::kOk;
    }
  };
  /// One lives on without an owner until the device has completed what it was given.
  struct Release {
    void operator()(NbdServer* server) const;
  };
  using Ptr = std::unique_ptr<NbdServer, Release>;
  /// Of a slot: what is longer goes in several parts, one after the other. A quarter of it made
  /// reads and writes of a MiB slower (docs/front-ends.md).
  static constexpr uint32_t kPayloadMax = kSlotPayloadMax;

  /// Takes connected stream sockets, one per connection.
  static base::Result<Ptr> create(base::Reactor& reactor, BlockDevice& device,
                                  NbdServerOptions options, std::unique_ptr<SlotPool<Slot>> pool,
                                  std::vector<UniqueFd> sockets);
  NbdServer(const NbdServer&) = delete;
  NbdServer& operator=(const NbdServer&) = delete;

  /// One more connection, whose client has sent `early` bytes already (at most NbdInput::kBytes).
  /// Where there are as many as there may be, the one whose client has sent no more for longest
  /// makes room.
  /// kBusy: there is none; kCanceled: no more are taken.
  base::Status add(UniqueFd socket, bool structured, std::span<const std::byte> early);
  /// No request is taken any more; what was taken is answered. Idempotent.
  void take_no_more();
  /// Closes all connections; answers that were not sent are dropped. Idempotent.
  void stop();
  /// Whether the kernel is about to close the connections because we asked for it: then that is no
  /// event to warn of.
  void expect_end(bool expected) { end_expected_ = expected; }
  /// Returns once the device has completed everything, and all answers are sent or dropped.
  base::Task<void> drained();
  /// False once every connection has ended.
  bool alive() const { return connections() != 0; }
  unsigned connections() const { return base::read_shared(open_); }
  /// Of those, whose clients are known to send no more: they wait for answers, or are dead.
  unsigned leaving() const { return base::read_shared(leaving_); }
  KernelDeviceStatistics statistics() const;
  /// From when a request is there to its end; null: not counted.
  const LatencyHistogram* latency(LatencyKind kind) const {
    return latency_.empty() ? nullptr : &latency_[static_cast<size_t>(kind)];
  }
  uint64_t device_bytes() const { return device_.info().size_bytes; }

 private:
  struct Connection {
    UniqueFd socket;  // invalid: the connection has ended
    NbdTerms terms;
    NbdInput input;
    bool readable = true;       // worth a try; else epoll will say so
    bool starved = false;       // a whole request is there, and no slot for it
    bool blocked = false;       // the socket has taken less than it was given
    bool more = false;          // the last try filled all the room that there was
    bool finished = false;      // its client sends no more
    bool leaving = false;       // no request is taken any more; ends when nothing is owed
    bool long_writes = false;   // the last request brought much: its payload goes past the input
    uint64_t active_ns = 0;     // something came or went
    uint64_t left_ns = 0;       // since when its client is known to send no more; 0: it is not
    uint32_t interest = 0;      // what epoll watches
    unsigned slots = 0;         // held
    Slot* incoming = nullptr;   // a write whose payload is being received (or, refused, skipped)
    size_t received_bytes = 0;  // of the present part of that payload
    size_t answer_bytes = 0;    // of `answers`, about
    unsigned answer_count = 0;  // likewise
    bool part_awaited = false;  // a simple reply has begun whose next part is not there yet
    base::IntrusiveList<Slot> answers;
    QuietMoment emptied;  // of the socket
    QuietMoment quiet;    // of the input, too
  };

  NbdServer(base::Reactor& reactor, BlockDevice& device, NbdServerOptions options,
            std::unique_ptr<SlotPool<Slot>> pool, UniqueFd epoll_fd);
  ~NbdServer() override;

  // --- nbd_server.cc: connections, and when to look at which socket
  bool poll() override;
  bool arm() override;
  base::Status watch(UniqueFd socket, NbdTerms terms, std::span<const std::byte> early);
  bool serve(Connection& connection);
  bool look_is_due(bool crowded) const;
  void look_at_sockets();
  void sockets_ready();
  void set_interest(Connection& connection);
  bool may_receive(const Connection& connection) const;
  bool has_work(const Connection& connection) const;
  bool is_hot(const Connection& connection) const;
  void forget_ended();
  /// Ends a connection. `reason` is for the log; null for one that took its leave.
  void end(Connection& connection, const char* reason);
  void sends_no_more(Connection& connection);
  bool make_room();

  // --- nbd_transmission.cc: requests. True: something was done.
  bool receive(Connection& connection);
  bool receive_failed(Connection& connection, bool finished);
  bool parse(Connection& connection);
  bool parse_payload(Connection& connection);
  bool wait_for_more(Connection& connection);
  bool begin_request(Connection& connection);
  BufferRef buffer_of(const Slot& slot) const;
  size_t part_bytes(const Slot& slot) const;
  void drop_incoming(Connection& connection);
  void payload_done(Connection& connection);
  bool may_begin(const Connection& connection) const;
  bool is_others_last(const Connection& connection) const;
  /// No more requests: of a client that has said so, or has closed its sending side.
  void leave(Connection& connection);
  void end_slow_leavers();

  // --- nbd_answers.cc: the device, and answers
  void run(Slot& slot);
  bool continue_parts();
  void start(Slot& slot);
  uint64_t part_max(BlockOp op) const;
  static void operation_done(DeviceOp& operation, base::Errc status);
  void part_written(Slot& slot, base::Errc status);
  void answer_skipped(Slot& slot);
  void answer(Slot& slot, uint32_t error, std::string_view words);
  bool may_send(const Connection& connection) const;
  bool send(Connection& connection);
  void sent(Connection& connection, size_t bytes);
  void look_behind_failed_flush(Connection& connection);
  /// `heard`: its client has its answer.
  void release(Slot& slot, bool heard = false);

  base::Reactor& reactor_;
  BlockDevice& device_;
  const NbdServerOptions options_;
  base::LimitedLog log_;  // clients come and go as they like
  std::unique_ptr<SlotPool<Slot>> pool_;
  const std::span<std::byte> content_;  // BlockDevice::content_memory()
  SlotShares shares_;
  // Readable when a socket is; the reactor watches only this, and only while it sleeps.
  FdHandle epoll_;
  base::Watch watch_;
  bool watched_ = false;
  uint64_t looked_ns_ = 0;
  base::Signal completed_;
  base::Timer leave_timer_;
  std::vector<std::unique_ptr<Connection>> connections_;
  base::IntrusiveList<Slot> parts_;  // whose next part is to begin
  unsigned open_ = 0;
  unsigned leaving_ = 0;
  bool some_ended_ = false;
  bool taking_ = true;
  bool stopped_ = false;
  bool end_expected_ = false;
  bool released_ = false;
  KernelDeviceStatistics statistics_;
  std::vector<LatencyHistogram> latency_;  // by LatencyKind, if they are counted
};

}  // namespace braid::bnbd
