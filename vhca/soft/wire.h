// Wire and Link: what stands between two QPs of software HCAs.
//
// The core (soft/qp.h) does all that verbs define: checks of work requests, queues, completions,
// RNR and retry counting, flush. A Wire finds peers and runs the connection manager's exchange; a
// Link carries the requests of one connected QP pair. Two families of links serve the same core:
//   direct   (in-host): execute() checks the peer's tables and moves the data itself; the verdict
//            is known at once. Arrivals (what consumes a receive) wait in a ring that the peer's
//            poll drains through next_arrival().
//   message  (simulated): execute() sends; at the peer the link calls LinkEnd::respond(), which
//            checks and executes; the answer comes back through LinkEnd::answered(), in order.
//   stream   (TCP): a message link whose bytes move in progress(), which polls of the CQs call, and
//            LinkEnd::move(); it answers through LockedEnd.
//
// Threads: calls of Link come under the QP's lock or from its Td thread. Calls of LinkEnd take the
// lock themselves: any thread, with a Td that one; never from inside a call of Link. News that come
// on another thread wait in the link until next_arrival(); LinkEnd::wake() makes the owner look.
// No call of Link allocates, blocks or makes system calls, but for close(), retries_changed(),
// waking a sleeper, foreign memory, the first access to a segment, a longer message in fragments
// than any before, and the sends and receives of stream links (which never block).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "vhca/device.h"
#include "vhca/soft/mr_table.h"
#include "vhca/soft/port.h"

namespace braid::vhca::soft {

class SoftDevice;
class SoftQp;

/// A stretch of local memory, checked. Not initialised: arrays of it are filled as far as needed.
struct Piece {
  std::byte* address;
  uint32_t length;
  uint32_t lkey;  // by which it was found; 0: it is nobody's registration (inline data)
};

/// One send work request, checked locally and ready to run at the peer.
struct Request {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool solicited = false;
  bool signaled = false;  // somebody waits for its completion
  uint32_t imm = 0;       // as in the work request (network byte order); SEND_WITH_INV: the key
  uint32_t rkey = 0;
  uint64_t remote_address = 0;
  uint32_t length = 0;     // sum of the pieces, at most 2^31
  uint64_t sequence = 0;   // counts the QP's requests from 0; names this one in answers
  uint64_t posted_ns = 0;  // for direct links with Link::needs_post_times; 0: just now
  std::span<const Piece>
      pieces;  // source, or for what returns data the destination; valid during
               // execute(), and for kSent until answered() or close(). Their
               // memory is registered during execute(); later: LockedEnd::stand()
  // Of an atomic; its length is 8.
  uint64_t compare_add = 0;  // what is added, or what the word must be
  uint64_t swap = 0;         // CMP_SWP: what it becomes then
};

/// What became of a request handed to a link.
enum class Outcome : uint8_t {
  kDone,       // accepted by the peer; completes with success
  kSent,       // LinkEnd::answered() will tell
  kNoReceive,  // the peer has no receive posted (RNR); try again after its timer
  kFull,       // no room on the wire; the same request (same sequence) comes again at a later poll
  kFailed,     // `status` says why; the QP goes to ERR
};
struct Execution {
  Outcome outcome = Outcome::kDone;
  uint8_t rnr_timer = 0;  // kNoReceive: the peer's min_rnr_timer code, 0..31
  ibv_wc_status status = IBV_WC_SUCCESS;
};

/// What arrived at the peer's end of a direct link and needs a receive work request there.
struct Arrival {
  ibv_wc_opcode opcode = IBV_WC_RECV;  // IBV_WC_RECV or IBV_WC_RECV_RDMA_WITH_IMM
  bool solicited = false;
  bool has_imm = false;
  bool invalidates = false;  // the window whose key is `imm`
  uint32_t imm = 0;
  uint32_t length = 0;                 // of the message, or of the RDMA write
  std::span<const std::byte> payload;  // of a SEND; stays valid until pop_arrival()
  /// For kFault: the status with which the next receive completes (LOC_LEN_ERR, LOC_PROT_ERR), or
  /// SUCCESS if the fault uses up no receive.
  ibv_wc_status fault = IBV_WC_SUCCESS;
  /// For kFault: what the peer's request failed with.
  ibv_wc_status refused = IBV_WC_SUCCESS;
};

/// What next_arrival() found.
enum class Next : uint8_t {
  kNone,
  kArrival,
  kWish,    // the peer has a message for a receive of our SRQ: receive_posted() gives it one, or
            // no_receive() tells that there is none; both take the wish away
  kFault,   // the peer was refused and knows it (key, bounds, access, length): our QP goes to ERR
  kBroken,  // the peer or the way to it is gone, or it broke the rules of the ring
};

/// The answer of a message link's far end.
struct Answer {
  enum class Kind : uint8_t {
    kAck,
    kNoReceive,      // RNR: the core sends again, from this sequence on, after the timer
    kError,          // `status` is what the requester reports
    kOutOfSequence,  // follows a request that met no receive: drop it, tell the core nothing
    kBusy,           // a word that somebody else is at: nothing happened, bring the request again.
                     // Stream links only, see Wire::change_word()
  } kind = Kind::kAck;
  uint8_t rnr_timer = 0;  // for kNoReceive
  ibv_wc_status status = IBV_WC_SUCCESS;
  bool landed = false;  // kAck of a READ: its data has been received where it belongs
};

/// Where the data of a request goes, as far as it is known to be allowed now.
struct Landing {
  Piece pieces[16];  // max_recv_sge of the device
  uint32_t count = 0;
};

/// What a wire must know of a QP to make its link.
struct EndInfo {
  uint32_t number = 0;
  uint32_t pd = 0;                     // MrView::pd of the memory that the peer may reach
  uint32_t access = 0;                 // qp_access_flags now, or those that establish() will give
  uint8_t min_rnr_timer = 0;           // code, 0..31; as above
  uint32_t max_recv_wr = 0;            // receives that can be posted at a time
  uint32_t max_recv_sge = 0;           // parts of each
  uint32_t max_send_wr = 0;            // and sends
  uint32_t longest_receive_bytes = 0;  // QpOptions'
  bool shares_receives = false;  // they are an SRQ's: receive_posted() only answers Next::kWish
  base::Event* event = nullptr;  // of the channel of the receive CQ; null: it is never armed
  base::Event* send_event = nullptr;  // of the send CQ, likewise; may be the same
  bool one_thread = false;            // made with a Td
};

class Link;

/// The QP as its link and the wire's connection manager see it.
class LinkEnd {
 public:
  virtual ~LinkEnd() = default;

  // --- connecting
  virtual EndInfo info() const = 0;
  /// From RESET or INIT (else kInvalid) to RTR, with this link to the peer. From RESET the access
  /// flags become remote write and, with responder resources, remote read and atomic, as RDMA CM
  /// does. Tells the link of access flags and of receives posted before. From now on the peer may
  /// send.
  virtual base::Status establish(std::unique_ptr<Link> link, uint32_t peer_qp_number,
                                 const ConnectParameters& parameters) = 0;
  /// RTR to RTS: sends may go, with the parameters given to establish().
  virtual base::Status start_sending() = 0;

  // --- message links
  /// At the responder: checks in the order of verbs, executes, makes completions. `payload` holds
  /// the data of a SEND or WRITE (request.pieces is not looked at). For a READ the data is given in
  /// `read_result`, for an atomic the word before it; valid until anything else happens to the QP
  /// or the memory. A request that comes again is executed once: an atomic is answered as it was
  /// before, or with kOutOfSequence if 16 others have come since (no initiator asks for that).
  virtual Answer respond(const Request& request, std::span<const std::byte> payload,
                         std::span<const std::byte>* read_result) = 0;
  /// At the requester: the fate of `sequence`, in order. What was sent behind a request that got
  /// kNoReceive was answered with kOutOfSequence and is sent again.
  virtual void answered(uint64_t sequence, const Answer& answer,
                        std::span<const std::byte> read_data) = 0;

  // --- the end, both families
  /// The peer or the way to it is gone for good: the oldest outstanding request completes with
  /// RETRY_EXC, the QP goes to ERR, which flushes it and calls Link::close().
  virtual void broken() = 0;
  /// The connection ends in order: to ERR, everything outstanding is flushed, Link::close().
  virtual void disconnected() = 0;
  /// Makes the owner poll: signals the channels of both CQs. Any thread, also under the lock.
  virtual void wake() = 0;

  // --- stream links
  /// Link::progress(), for an owner that does not poll. Any thread.
  virtual void move() = 0;
};

/// The QP as a stream link sees it in Link::progress(), under the lock: the calls of LinkEnd for
/// message links, and what receiving into memory in several steps needs. Any of them may end in
/// Link::close().
class LockedEnd {
 public:
  virtual ~LockedEnd() = default;
  virtual base::Status start_sending_locked() = 0;
  virtual Answer respond_locked(const Request& request, std::span<const std::byte> payload,
                                std::span<const std::byte>* read_result) = 0;
  /// Whether a SEND or WRITE may go on, and where its data goes. The first look (`begun` false)
  /// makes all checks of respond(); kAck then means that respond_landed() must follow, or the end
  /// of the link. Later looks are for memory that was deregistered meanwhile.
  virtual Answer land(const Request& request, bool begun, Landing& landing) = 0;
  /// All of the request's data is where land() said. Completes it.
  virtual Answer respond_landed(const Request& request) = 0;
  /// The memory that the rkey of a READ, answered before, still stands for; empty if for none.
  virtual std::span<const std::byte> readable(const Request& request) = 0;
  /// Whether all of a request's pieces are still registered; `lands`: and may be written. For who
  /// touches them after execute().
  virtual bool stand(std::span<const Piece> pieces, bool lands) const = 0;
  /// The receive CQ is armed: its owner may not poll before it has an event.
  virtual bool sleeps() const = 0;
  /// The memory of a request that was taken is gone before any of it was sent, and it will not be:
  /// it fails when all before it have completed, and no request behind it may be sent.
  virtual void memory_gone_locked(uint64_t sequence) = 0;
  virtual void answered_locked(uint64_t sequence, const Answer& answer,
                               std::span<const std::byte> read_data) = 0;
  virtual void broken_locked() = 0;
  virtual void disconnected_locked() = 0;
  /// The link has refused a request of the peer with `status`, and tells it: to ERR.
  virtual void refused_locked(ibv_wc_status status, std::string_view cause) = 0;
};

/// Copies of peers that were under way when a key went. Any thread, one at a time.
class PeerFence {
 public:
  virtual ~PeerFence() = default;
  /// Whether all of them have ended. Never waits.
  virtual bool passed() = 0;
  /// Who has not: "process 123". For people.
  virtual std::string waits_for() const = 0;
};
/// Passes when both have; null is one that has.
std::unique_ptr<PeerFence> both_fences(std::unique_ptr<PeerFence> a, std::unique_ptr<PeerFence> b);
/// Looks so many times at most, each some tens of nanoseconds after the last: most copies end
/// meanwhile, and a lock that is taken again and again is free for moments only.
bool passes_soon(PeerFence& fence, unsigned looks);

enum class LinkFamily : uint8_t { kDirect, kMessage, kStream };

class Link {
 public:
  explicit Link(LinkFamily link_family) : family(link_family) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  const LinkFamily family;
  /// Set while a direct link wants to know when requests were posted. Any thread.
  std::atomic<bool> needs_post_times{false};
  /// Closes. A copy that is under way still counts for Wire::fence_peers().
  virtual ~Link() = default;
  virtual Execution execute(const Request& request) = 0;

  // --- stream links
  /// No more requests follow at once: send what execute() took.
  virtual void flush(LockedEnd& end) { (void)end; }
  /// Sends and receives what can be without waiting, within a bound. `woken`: not by a poll.
  virtual void progress(LockedEnd& end, bool woken) { (void)end, (void)woken; }
  /// The connection ends in order: tells the peer.
  virtual void hang_up() {}
  /// Of Qp::arrived_bytes().
  virtual uint64_t arrived_bytes() const { return 0; }
  /// Qp::share_wire_budget().
  virtual void share_wire_budget(std::shared_ptr<WireBudget> budget) { (void)budget; }

  // --- direct links, receive side (arm: stream links, too)
  /// The next arrival, copied out of shared memory and checked. Called at each poll: cheap when
  /// there is nothing.
  virtual Next next_arrival(Arrival& arrival) = 0;
  /// Drops what next_arrival() gave last (kArrival).
  virtual void pop_arrival() = 0;
  /// A receive was posted: the peer may send `length_bytes` into it. Not `usable`: its memory may
  /// not be written, and who sends into it gets REM_OP_ERR, we kFault with LOC_PROT_ERR. Receives
  /// posted before the link was given are told then. `lkeys`: of its memory, by which it is known
  /// when a message comes whether that is still registered.
  virtual void receive_posted(uint32_t length_bytes, bool usable,
                              std::span<const uint32_t> lkeys) = 0;
  /// After Next::kWish: the SRQ is empty. The peer may ask again after our RNR timer.
  virtual void no_receive() {}
  /// The receive CQ sleeps (true) or polls (false): the peer's next arrival signals EndInfo::event,
  /// or does not. One arming gives one signal. The CQ arms all its links, then comes
  /// one Host::heavy_fence(), then a look for arrivals.
  virtual void arm(bool armed, bool solicited_only) = 0;
  /// The send CQ sleeps or polls: what execute() answered with kFull because the peer must move
  /// first signals EndInfo::send_event when it has. False: the peer never has to.
  virtual bool arm_sends(bool armed) {
    (void)armed;
    return false;
  }

  /// What the peer may do, or min_rnr_timer, changed: publish them. `access` is without the flags
  /// for reads and atomics if the QP has no responder resources. Called when the link is given,
  /// too.
  virtual void qp_changed(uint32_t access, uint8_t min_rnr_timer) = 0;
  /// How long a request may stay without an answer from now on, also one that waits already; both
  /// as in ConnectParameters.
  virtual void retries_changed(uint8_t ack_timeout, uint8_t retry_count) {
    (void)ack_timeout, (void)retry_count;
  }

  /// The key of a window of this QP, which only its peer can have resolved, has gone. What the peer
  /// may still be at with it; null: nothing. No system call. Links that are not direct resolve keys
  /// on the thread that is here, under the QP's lock, and again for each piece of data.
  virtual std::unique_ptr<PeerFence> fence_window(uint32_t key) {
    (void)key;
    return nullptr;
  }

  /// Ends the link: what the peer begins from now on is refused. True: nothing of it lands in our
  /// memory through this link any more. False: a copy of a direct link's peer is under way; call
  /// again to ask. Never waits: a process that was stopped in the middle of a copy may stay so.
  virtual bool close() = 0;
};

/// A way to reach peers. One per SoftDevice. Any thread.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual std::string kind_text() const = 0;  // "shared memory inside this host"
  virtual base::Result<PortAttr> query_port(uint8_t port) const = 0;
  virtual base::Result<Gid> query_gid(uint8_t port, int index) const = 0;
  virtual uint8_t port_count() const = 0;
  /// In simulated worlds the fences of the process so far: there an arming counts from the next one
  /// on, as with direct links, so that they go through all that follows from that.
  virtual std::optional<uint64_t> fences() const { return std::nullopt; }
  /// From 1 to port_count(). Null: its faults are others' to make.
  virtual Port* port(uint8_t number) {
    (void)number;
    return nullptr;
  }
  /// The callback runs when the port goes down or comes up, on the thread that makes it so; set
  /// once, before the device is used.
  virtual void on_port_state(uint8_t number, std::function<void(bool up)> callback) {
    if (Port* const made = port(number); made != nullptr) made->on_state(std::move(callback));
  }
  /// 24 bits, random; 0 when there is none left. Unique on the wire: among the processes of a host
  /// in-host, among the QPs of one device elsewhere.
  virtual uint32_t allocate_qp_number() = 0;
  virtual void release_qp_number(uint32_t number) = 0;

  // --- registered memory, for wires whose peers resolve rkeys themselves
  /// Zero-filled memory for `capacity` entries that peers may map (aligned to 64), or empty. Asked
  /// once, before anything is registered.
  virtual std::span<MrEntry> mr_table_memory(uint32_t capacity) {
    (void)capacity;
    return {};
  }
  /// Where the peers of this PD's QPs find memory that they may reach; released with the
  /// registration. Called before it is published.
  virtual MrPlace place_memory(std::byte* address, uint64_t length_bytes, uint32_t pd) {
    (void)address, (void)length_bytes, (void)pd;
    return {};
  }
  virtual void release_memory(const MrPlace& place) { (void)place; }
  /// `key` was just taken out of the table. Null: no peer, and no thread of ours that acts for a
  /// peer, uses what it resolved before. Else the memory is theirs until the fence has passed.
  virtual std::unique_ptr<PeerFence> fence_peers(uint32_t key) {
    (void)key;
    return nullptr;
  }
  /// The same of memory that peers may not reach (posted receives). Peers are not asked: only
  /// threads of ours that touch it for them.
  virtual std::unique_ptr<PeerFence> fence_local(uint32_t key) {
    (void)key;
    return nullptr;
  }

  enum class WordChange : uint8_t {
    kDone,
    kBusy,    // a peer is at the word; nothing happened
    kFailed,  // nothing happened, and the log says why
  };
  /// An atomic for a peer of a message link on memory of `mr`, which has been checked. What the
  /// word was goes to `before`. Wires whose other peers change such memory by themselves keep these
  /// away meanwhile; only wires with stream links may say kBusy.
  virtual WordChange change_word(const Request& request, const MrView& mr, uint64_t& before);

  // --- finding peers
  virtual base::Result<std::unique_ptr<Listener>> listen(SoftDevice& device, base::Reactor& reactor,
                                                         const Address& address, int backlog) = 0;
  virtual base::Task<base::Result<ConnectResult>> connect(SoftDevice& device,
                                                          base::Reactor& reactor, SoftQp& qp,
                                                          Address peer,
                                                          ConnectParameters parameters,
                                                          uint64_t timeout_ns) = 0;
};

}  // namespace braid::vhca::soft
