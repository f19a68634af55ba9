// The device seam (design decision D1): everything above vhca/ sees a Device, be it hardware,
// software or a bond.
//
// The contract is that of verbs: QP states and attribute masks, order within a QP, RNR, retry
// exceeded, flush in order, access flags on QP and MR, completion channels without lost wake-ups.
// README.md states it; ibv_* manual pages define it.
//
// Threads: every object may be used from any thread. An object made with a thread domain (Td) is
// promised to one thread and takes no lock. Data moves in post and poll; control work runs on the
// reactor given to the device. Ownership: unique_ptr, and an object must outlive what was made from
// it (Device > Pd > Mr, Mw, Srq, Qp; Cq, Srq > Qp; CompChannel > Cq). Errors: control calls return
// Result; posts return 0 or a positive errno as ibv_post_send does (EINVAL: wrong state, type or
// too many SGEs; ENOMEM: queue full); the outcome of what was posted comes exactly once, as a
// completion.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host.h"
#include "base/result.h"
#include "base/task.h"
#include "vhca/verbs.h"
#include "vhca/wire_budget.h"

namespace braid::base {
class Reactor;
}

namespace braid::vhca {

class Cq;
class Qp;
class Pd;
class Srq;

/// A thread domain: the promise that one thread uses the objects made with it: that of the reactor
/// which connects or accepts for its QPs.
class Td {
 public:
  virtual ~Td() = default;
};

/// Wakes who waits for completions. One channel may serve many CQs.
class CompChannel {
 public:
  virtual ~CompChannel() = default;
  /// Becomes signalled when an armed CQ of the channel gets a completion. Watch it with
  /// IoQueue::watch; spurious wake-ups happen, lost ones do not.
  virtual base::Event& event() = 0;
  /// The next CQ with an event, or null. Never blocks. Each one returned must be acknowledged on
  /// the CQ. Consumes the event: nobody else shall.
  /// Call it until it returns null: only then the event tells of others.
  virtual Cq* next_event() = 0;
  /// After next_event() returned null: it has not looked everywhere, so as not to take long. Call
  /// it again in the next turn, and do not wait for the event before.
  virtual bool more() const { return false; }
};

class Cq {
 public:
  virtual ~Cq() = default;
  /// Takes up to out.size() completions; their number, or -1 when the CQ was overrun. On error
  /// status only wr_id, status, qp_num and vendor_err are valid.
  virtual int poll(std::span<Wc> out) = 0;
  /// Arms the channel for the next completion (solicited_only: the next solicited or failed one).
  /// Poll again afterwards: what came before arming gives no event.
  virtual void arm(bool solicited_only = false) = 0;
  /// arm(), for who arms many: if it returns true, it counts from the next
  /// base::Host::heavy_fence() of any thread here on, one for all. Poll again after that.
  virtual bool begin_arm(bool solicited_only = false) {
    arm(solicited_only);
    return false;
  }
  /// Who polls again needs no event any more: none comes, where the device can take the arming
  /// back. One may be under way. What another thread arms at the same time stays, or is taken back.
  virtual void disarm() {}
  virtual void ack_events(unsigned count) = 0;
  virtual int capacity() const = 0;
  /// ibv_resize_cq: room for at least `capacity` completions, those that wait stay. kInvalid if
  /// there are more of them, or more than the device allows.
  virtual base::Status resize(int capacity) {
    (void)capacity;
    return base::make_error(base::Errc::kNotSupported, "the device does not resize CQs");
  }
  void* context = nullptr;  // the user's
};

/// Registered memory. `lkey` names it in local SGEs, `rkey` to peers (random, resolves at its
/// owner). The ibv_mr is there for work requests that name it (IBV_WR_BIND_MW).
class Mr : public ibv_mr {
 public:
  Mr() : ibv_mr{} {}
  Mr(const Mr&) = delete;
  Mr& operator=(const Mr&) = delete;
  /// Deregisters: when it returns no peer can touch the memory through this MR any more. Waits for
  /// copies that are under way, of peers and of threads inside a post or a poll (so never call it
  /// in there); one whose process was stopped in the middle of it holds it up: reactors use
  /// Pd::dereg_mr(), or drain the QPs first. A QP with a Td is not waited for: its thread
  /// deregisters what its requests name, or it is quiet. Windows that are bound to the memory are
  /// invalidated first: ask has_windows() where verbs refuse.
  virtual ~Mr() = default;
  virtual bool has_windows() const { return false; }
  std::byte* address = nullptr;
  uint64_t length_bytes = 0;
  int access = 0;  // ibv_access_flags
};

/// A memory window: an rkey for a part of an Mr that a work request binds to it (IBV_WR_BIND_MW)
/// and takes away (IBV_WR_LOCAL_INV, the peer's IBV_WR_SEND_WITH_INV). `rkey` is what it was
/// allocated with; binding chooses the low 8 bits anew (ibv_inc_rkey) and leaves the member to the
/// program.
class Mw : public ibv_mw {
 public:
  Mw() : ibv_mw{} {}
  Mw(const Mw&) = delete;
  Mw& operator=(const Mw&) = delete;
  /// Invalidates, as ~Mr().
  virtual ~Mw() = default;
};

struct CqOptions {
  int capacity = 256;
  CompChannel* channel = nullptr;
  Td* td = nullptr;
};

struct SrqOptions {
  uint32_t max_wr = 256;
  uint32_t max_sge = 1;
  Td* td = nullptr;
};

/// Receives that QPs share: each message takes the oldest. A QP that ends leaves the others to the
/// rest.
class Srq {
 public:
  virtual ~Srq() = default;
  /// As Qp::post_recv(); the memory is that of the Srq's Pd.
  virtual int post_recv(const RecvWr* wr, const RecvWr** bad) = 0;
  /// ibv_modify_srq. IBV_SRQ_LIMIT arms: when fewer than srq_limit receives are left, now or later,
  /// IBV_EVENT_SRQ_LIMIT_REACHED comes once, and the limit is 0 again. IBV_SRQ_MAX_WR: room for as
  /// many; kInvalid if more are posted.
  virtual base::Status modify(const SrqAttr& attr, int mask) = 0;
  virtual SrqAttr query() const = 0;
  void* context = nullptr;  // the user's
};

struct QpOptions {
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  QpCap cap{.max_send_wr = 128,
            .max_recv_wr = 128,
            .max_send_sge = 4,
            .max_recv_sge = 1,
            .max_inline_data = 64};
  bool signal_all = false;  // sq_sig_all
  Srq* srq = nullptr;  // receives come from there; max_recv_wr and max_recv_sge say nothing then
  Td* td = nullptr;
  /// A send may go with the next poll, or arm(), of a CQ of the QP, or with Qp::send_posted(): the
  /// program promises one of them soon after a post, also while the CQ is armed. Where a post is a
  /// system call, many share one.
  bool posts_with_poll = false;
  /// The longest SEND that will come, as the program expects. Longer ones come all the same, but a
  /// device that keeps room for messages under way keeps it for such. 0: not known.
  uint32_t longest_receive_bytes = 0;
};

class Qp {
 public:
  /// Never waits. What the peer had begun before may still land in registered memory, unless the QP
  /// was drained: moved to ERR and its flushed completions polled.
  virtual ~Qp() = default;
  /// Posts a chain. On failure returns errno, sets *bad (unless null) to the first not posted;
  /// those before it are posted.
  virtual int post_send(const SendWr* wr, const SendWr** bad) = 0;
  virtual int post_recv(const RecvWr* wr, const RecvWr** bad) = 0;
  /// Whether posts wait, as QpOptions::posts_with_poll allows. Settled when the QP is connected.
  virtual bool holds_posts() const { return false; }
  /// Those that wait go now.
  virtual void send_posted() {}
  /// ibv_modify_qp: the mask must be what the transition requires and allows; else kInvalid naming
  /// state and attribute.
  virtual base::Status modify(const QpAttr& attr, int mask) = 0;
  virtual QpAttr query() const = 0;
  /// What it was made with (ibv_query_qp's init_attr); `cap` is what it got.
  virtual QpOptions options() const = 0;
  virtual uint32_t number() const = 0;
  /// Grows while a long message of the peer arrives, before it completes: bytes of data since the
  /// QP was made. 0 for ever where the device cannot tell. The owner's thread.
  virtual uint64_t arrived_bytes() const { return 0; }
  /// Whether it is lost only with all others that connect the same two programs by the same ports,
  /// as in shared memory (and in simulated worlds without TCP): a sign of life by one of those is
  /// one of each. Of a connected QP. The owner's thread.
  virtual bool shares_fate() const { return false; }
  /// From now on, of a connected QP: takes from it what the device moves by the program's own
  /// processor, and waits while it is used up. No matter to devices that do not. The owner's
  /// thread, which is that of the connection's reactor.
  virtual void share_wire_budget(std::shared_ptr<WireBudget> budget) { (void)budget; }
  void* context = nullptr;  // the user's
};

class Pd {
 public:
  virtual ~Pd() = default;
  /// Memory from Host::create_segment is reached by peers of the same host with plain stores; other
  /// memory by system calls.
  virtual base::Result<std::unique_ptr<Mr>> reg_mr(std::byte* address, uint64_t length_bytes,
                                                   int access) = 0;
  /// Deregisters and never waits: the key is gone when it returns, and `memory` is let go of when
  /// no peer can touch it any more: now, or on the control reactor, or with the device. What may
  /// not be used again before then belongs in `memory`; it must not hold the device.
  virtual void dereg_mr(std::unique_ptr<Mr> mr, std::shared_ptr<void> memory) {
    mr.reset();
    memory.reset();
  }
  virtual base::Result<std::unique_ptr<Qp>> create_qp(const QpOptions& options) = 0;
  virtual base::Result<std::unique_ptr<Mw>> alloc_mw(ibv_mw_type type) {
    return base::make_error(base::Errc::kNotSupported,
                            "the device has no memory windows of type {}", static_cast<int>(type));
  }
  virtual base::Result<std::unique_ptr<Srq>> create_srq(const SrqOptions& options) {
    (void)options;
    return base::make_error(base::Errc::kNotSupported, "the device has no SRQs");
  }
};

// --- connection manager (RDMA CM's semantics, IP port space) ---

/// An IP address and a port. Text form "127.0.0.1:1234", "[::1]:1234".
struct Address {
  std::string ip;
  uint16_t port = 0;
};

/// What each side brings to a connection. Bounds as in RDMA CM; beyond them connect() and accept()
/// end with kInvalid before the peer hears anything.
struct ConnectParameters {
  std::span<const std::byte>
      private_data;             // at most 56 bytes on connect, 196 on accept, 148 on reject
  uint8_t retry_count = 6;      // 0..7
  uint8_t rnr_retry_count = 7;  // 0..7; 7: for ever
  uint8_t ack_timeout = 12;     // 0..31: 4.096 us * 2^n, times retries: when RETRY_EXC is reported;
                                // 0: never
  // 0..16; a device that has fewer gives what it has (Qp::query() tells).
  uint8_t responder_resources = 16;
  uint8_t initiator_depth = 16;
};

/// An established connection of one QP. The QP is in RTS; destroying the connection disconnects
/// (the peer is told).
class Connection {
 public:
  virtual ~Connection() = default;
  /// What the peer sent with its accept or its connect.
  virtual std::span<const std::byte> peer_private_data() const = 0;
  /// Tells the peer and moves the QP to ERR, which flushes it. Idempotent.
  virtual void disconnect() = 0;
  /// True once either side disconnected or the peer process is gone.
  virtual bool disconnected() const = 0;
  /// Runs once, on the connection's reactor, when the peer disconnects or dies. At once if that has
  /// happened already.
  virtual void on_disconnect(std::function<void()> callback) = 0;
  virtual std::string peer_text() const = 0;  // for people: address, process
};

/// A peer that asks to connect. Destroying it undecided rejects with no data.
class ConnectRequest {
 public:
  virtual ~ConnectRequest() = default;
  virtual std::span<const std::byte> private_data() const = 0;
  /// "address:port", or for a process of this host another text, without a port.
  virtual std::string peer_text() const = 0;
  /// Moves the QP (in RESET or INIT; receives may have been posted in INIT) to RTS and answers.
  /// `reactor` is the one that owns the QP; the request may have been handed to it by message from
  /// the listener's. Parameters' spans must stay valid until the task is done.
  virtual base::Task<base::Result<std::unique_ptr<Connection>>> accept(
      base::Reactor& reactor, Qp& qp, ConnectParameters parameters) = 0;
  virtual void reject(std::span<const std::byte> private_data) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;
  /// The next request. One waiter at a time.
  virtual base::Task<base::Result<std::unique_ptr<ConnectRequest>>> next() = 0;
  virtual Address address() const = 0;  // with the port that was chosen if 0 was asked
};

/// The result of a connect that the peer refused: kRefused, with the data of its reject.
struct ConnectResult {
  std::unique_ptr<Connection> connection;  // null if rejected
  std::vector<std::byte> reject_private_data;
};

/// Something that happened to one QP, CQ, SRQ or port and that no completion tells. README.md lists
/// them.
struct AsyncEvent {
  ibv_event_type type = IBV_EVENT_QP_FATAL;
  Qp* qp = nullptr;    // of IBV_EVENT_QP_*
  Cq* cq = nullptr;    // of IBV_EVENT_CQ_ERR
  Srq* srq = nullptr;  // of IBV_EVENT_SRQ_*
  uint8_t port = 0;    // of IBV_EVENT_PORT_*, IBV_EVENT_GID_CHANGE
};

struct DeviceInfo {
  std::string name;  // "soft0", "rxe_a0"
  std::string kind;  // for people: "software HCA, shared memory inside this host"
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual base::Reactor& control_reactor() = 0;
  virtual DeviceAttr query() const = 0;
  virtual base::Result<PortAttr> query_port(uint8_t port) const = 0;
  virtual base::Result<Gid> query_gid(uint8_t port, int index) const = 0;
  /// Host byte order. Index 0 of software devices is 0xffff, the default partition, all there is.
  /// kInvalid: the port's table has no such index.
  virtual base::Result<uint16_t> query_pkey(uint8_t port, int index) const = 0;

  /// Becomes signalled when next_async_event() has something to give. Spurious wake-ups happen,
  /// lost ones do not.
  virtual base::Event& async_event() = 0;
  /// The oldest event that nobody took yet, or nothing. Never blocks. What waits of a QP, CQ or SRQ
  /// goes with it; who destroys them on another thread than the one that asks here sees to it that
  /// the event's pointer is not used any more. A QP that is moved to RESET begins without events.
  virtual std::optional<AsyncEvent> next_async_event() = 0;

  virtual std::unique_ptr<Td> create_td() = 0;
  virtual base::Result<std::unique_ptr<Pd>> alloc_pd() = 0;
  virtual base::Result<std::unique_ptr<CompChannel>> create_comp_channel() = 0;
  virtual base::Result<std::unique_ptr<Cq>> create_cq(const CqOptions& options) = 0;

  /// The tasks and objects these give belong to `reactor`, on whose thread they are called.
  virtual base::Result<std::unique_ptr<Listener>> listen(base::Reactor& reactor,
                                                         const Address& address, int backlog) = 0;
  /// Connects the QP (in RESET or INIT) and moves it to RTS. kRefused: nobody listens; kTimedOut; a
  /// reject is a result.
  virtual base::Task<base::Result<ConnectResult>> connect(base::Reactor& reactor, Qp& qp,
                                                          Address peer,
                                                          ConnectParameters parameters,
                                                          uint64_t timeout_ns) = 0;
};

}  // namespace braid::vhca
