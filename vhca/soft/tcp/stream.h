// TcpStream: a QP's half of a connection, in bytes: frames out, frames in, data where it belongs.
//
// What has fully arrived in the buffer is handled there; data of longer frames is received straight
// into its memory, but for the last 8 bytes, which are stored last. Memory, be it of a peer's
// request or of our own, is looked up again before each system call that touches it, and `Activity`
// is odd meanwhile, so that a deregistration can wait for it.
//
// Threads: one at a time: whoever holds the QP's lock, and after the QP is gone TcpEnd's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/stream_socket.h"
#include "vhca/soft/tcp/complaint_box.h"
#include "vhca/soft/tcp/frames.h"
#include "vhca/soft/tcp/outbound.h"
#include "vhca/soft/wire.h"
#include "vhca/wire_budget.h"

namespace braid::vhca::soft::tcp {

/// Odd while a thread of a stream may touch registered memory for a peer.
struct Activity {
  alignas(64) std::atomic<uint64_t> count{0};
};

/// What a stream asks of its surroundings. Called by whoever drives the stream: any thread.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;
  /// Call TcpStream::run() when the socket is readable, or writable.
  virtual void want_read() = 0;
  virtual void want_write() = 0;
  /// Something is to be acknowledged that nothing has carried yet: call acknowledge() soon. Only
  /// from a run() with `woken`.
  virtual void acknowledge_later() = 0;
  /// Call run() now and then for as long as TcpStream::looks_at_ports(). A peer can bring about one
  /// of these in each run().
  virtual void ports_changed() = 0;
  /// Call run() soon, `woken`: the next request is an atomic on a word that somebody else is at.
  /// Told at each look that finds it so, also of polls beside that run().
  virtual void word_is_claimed() = 0;
  /// Call run() now, `woken`, from within the owner's turn: the budget allows it again.
  virtual void may_receive() = 0;
  /// The peer's QP is in RTS (acceptor), once.
  virtual void peer_ready() = 0;
  /// Nothing follows, once. kDisconnected: the peer said so, or is gone.
  virtual void over(base::Errc why) = 0;
};

class TcpStream final : private WireUser {
 public:
  struct Options {
    uint32_t epoch = 0;
    uint32_t sends_max = 128;    // the QP's max_send_wr
    bool awaits_ready = false;   // the acceptor
    std::string peer_text;       // for the log
    std::shared_ptr<Port> port;  // ours; null: no port has faults, whatever the peer says of his
    std::shared_ptr<ComplaintBox> complaints;  // where lines about the peer go; null: to the log
    uint64_t retry_ns = 0;  // how long a port may keep a request without answer; 0: for ever.
                            // set_retry_ns() changes it
  };
  TcpStream(base::Host& host, base::StreamSocket& socket, StreamEvents& events,
            std::shared_ptr<Activity> activity, const Options& options);

  // --- for the link
  Execution execute(const Request& request);
  void flush(LockedEnd& end) {
    end_ = &end;
    flush();
  }
  void set_retry_ns(uint64_t retry_ns) { retry_ns_ = retry_ns; }
  /// Until it hangs up.
  void share_budget(std::shared_ptr<WireBudget> budget);
  /// Sends and receives. `end` null: the QP is gone. `woken`: the socket is said to be ready; else
  /// the owner polls, and a socket that was silent for long is looked at now and then only.
  void run(LockedEnd* end, bool woken);
  /// The owner goes to sleep.
  void sleep();
  /// Tells the peer what was executed, if nothing else has.
  void acknowledge();
  /// No memory of the QP's owner is touched any more, and no request of the peer executed.
  void close();
  /// Tells the peer that the connection ends.
  void hang_up();
  /// Data of frames longer than the buffer: what else comes completes as soon as it is seen.
  /// Neither acknowledgements nor anything that is no data counts: a peer's kernel, or another of
  /// its threads, may send those.
  uint64_t arrived_bytes() const { return arrived_bytes_; }

  /// The QP is gone.
  void leave();

  /// Our port's faults are others than before. Any thread.
  void port_changed() { hindered_.store(true, std::memory_order_seq_cst); }
  /// Whether faults of a port are looked at in each run(). Any thread.
  bool hindered() const { return hindered_.load(std::memory_order_relaxed); }
  /// Whether somebody must run() for that: our port has faults, or the peer's has and something
  /// waits for the peer. Any thread.
  bool looks_at_ports() const { return looks_.load(std::memory_order_seq_cst); }
  /// Whether our port receives nothing: do not watch the socket for reading. Any thread.
  bool deaf() const { return hindered() && (own_trouble() & Port::kLosesReceived) != 0; }

  /// The next run() acknowledges. Any thread.
  void acknowledgement_due() { acknowledgement_due_.store(true, std::memory_order_relaxed); }
  /// Polls look at the socket now and then only. Any thread.
  void cool() { hot_.store(false, std::memory_order_relaxed); }
  /// Whether polls look at the socket each time. Any thread.
  bool hot() const { return hot_.load(std::memory_order_relaxed); }
  /// Whether nothing is received before the socket has taken some, or a word is free: do not watch
  /// it for reading. Any thread.
  bool stuck() const { return stuck_.load(std::memory_order_relaxed) || waits_for_word(); }
  /// Whether nothing is received before StreamEvents::may_receive(), either. Any thread.
  bool waits_for_turn() const { return waits_for_turn_.load(std::memory_order_relaxed); }
  /// Whether the next request is an atomic on a word that somebody else is at. Any thread.
  bool waits_for_word() const { return waits_for_word_.load(std::memory_order_relaxed); }
  /// After hang_up(): whether the farewell still waits for the socket. Any thread.
  bool unsent() const { return unsent_.load(std::memory_order_relaxed); }
  /// Counts the owner's polls. Any thread.
  uint32_t polls() const { return polls_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kBufferBytes = 16 * 1024;
  static constexpr uint32_t kPieces = 18;
  static constexpr uint32_t kReadsMax = 16;  // and atomics of the peer at a time
  enum class Into : uint8_t { kBuffer, kRequest, kResponse, kNowhere };
  struct Read {
    uint64_t sequence = 0;
    std::span<const Piece> pieces;
    uint32_t length = 0;
  };
  class Busy;

  bool ended() const { return dead_ != base::Errc::kOk || send_failed_ != base::Errc::kOk; }

  // --- stream.cc
  void flush();
  bool receive(uint64_t left);
  void note_silence(bool received);
  void hear_last_words();
  bool should_receive(bool woken);
  bool has_turn();
  void resume_receiving() override;
  void leave_budget();
  uint32_t receive_pieces(iovec* pieces);
  void landed_bytes(size_t count);
  bool send();
  void report();
  void fail(base::Errc why);
  void violate(const std::string& what);
  void complain(std::string line);
  void oldest_is_stale();
  void send_last_words();

  // --- inbound.cc
  void parse();
  bool check(const FrameHeader& header);
  void wait_for_word();
  static bool changes_memory(const FrameHeader& header);
  void dispatch(const FrameHeader& header, std::span<const std::byte> data);
  void respond(const FrameHeader& header, std::span<const std::byte> data);
  void answer(const Request& request, const Answer& answer, std::span<const std::byte> result);
  void push_answer(const Request& request, const Answer& answer, std::span<const std::byte> result);
  void response(const FrameHeader& header, std::span<const std::byte> data, bool landed);
  void refused(const FrameHeader& header);
  void advance();
  bool outstanding(uint64_t sequence, uint32_t length);

  // --- faults.cc: what ports do (docs/port-faults.md)
  struct Withheld {
    Request request;
    Answer answer;
    std::array<std::byte, 8> word;  // of an atomic
  };
  uint32_t own_trouble() const { return options_.port != nullptr ? options_.port->trouble() : 0; }
  void port_word(bool loses);
  void look_at_ports();
  void judge_silence(uint32_t own, uint64_t now_ns);
  bool withholds() const {
    return hindered() && ((own_trouble() & Port::kLosesAnswers) != 0 || !withheld_.empty());
  }
  void withhold(const Request& request, const Answer& answer, std::span<const std::byte> result);
  void answer_withheld();
  void note_request();
  void respond_again(const Request& request, std::span<const std::byte> data, const Answer& first);

  // --- landing.cc: data of a frame that is longer than the buffer
  void begin_landing(const FrameHeader& header);
  bool look_up_again();
  bool destination_stands();
  uint32_t landing_room(iovec* pieces);
  size_t land_from_buffer();
  void landing_done();

  base::Host& host_;
  base::StreamSocket& socket_;
  StreamEvents& events_;
  const std::shared_ptr<Activity> activity_;
  const Options options_;
  LockedEnd* end_ = nullptr;  // once run() or flush() was called with one, until the QP is gone
  std::shared_ptr<WireBudget> budget_;  // null: no bound but that of a run()
  Outbound out_;
  base::Errc dead_ = base::Errc::kOk;         // why nothing is carried any more
  base::Errc send_failed_ = base::Errc::kOk;  // what has come is still received
  bool reported_ = false;
  bool running_ = false;
  bool closed_ = false;    // by the QP
  bool gone_due_ = false;  // kGone is to be sent
  bool hung_up_ = false;
  bool in_order_ = false;   // the peer said kDisconnect
  bool peer_gone_ = false;  // the peer said kGone
  bool awaits_ready_ = false;
  uint32_t frames_before_ready_ = 0;

  // As requester.
  uint64_t answered_ = 0;      // requests below have been answered to the core
  uint64_t acknowledged_ = 0;  // by the peer: of what was sent
  uint64_t next_ = 0;          // the next request that execute() may bring, unless it goes back
  std::array<Read, kReadsMax> reads_;  // READs and atomics under way, a ring
  uint32_t reads_head_ = 0;
  uint32_t reads_tail_ = 0;

  // As responder.
  uint64_t executed_ = 0;  // requests of the peer below are executed
  uint64_t unacknowledged_since_ns_ = 0;
  bool urgent_ = false;      // the peer waits for the acknowledgement
  bool told_owner_ = false;  // of what is unacknowledged: an answer may come by itself

  // Receiving.
  Into into_ = Into::kBuffer;
  FrameHeader landing_;  // whose data comes
  Landing place_;        // of a request's data
  uint64_t landed_ = 0;  // bytes of it that have come
  uint64_t arrived_bytes_ = 0;
  std::byte tail_bytes_[8];  // the last ones
  size_t begin_ = 0;         // of what is in the buffer
  size_t filled_ = 0;
  const std::unique_ptr<std::byte[]> buffer_;
  uint64_t word_wait_ns_ = 0;   // of polls, while a word is claimed
  uint64_t word_again_ns_ = 0;  // when they look at it again

  // Faults of ports.
  std::atomic<bool> hindered_{false};
  std::atomic<bool> looks_{false};
  bool port_told_ = false;  // the peer knows that ours may keep answers back
  bool peer_port_loses_ = false;
  uint64_t retry_ns_ = options_.retry_ns;
  uint64_t waits_for_ = 0;          // the request without answer that a port may have lost, and
  uint64_t waits_since_ns_ = 0;     // since when; 0: there is none
  std::vector<Withheld> withheld_;  // in order

  std::atomic<bool> hot_{false};
  std::atomic<bool> stuck_{false};  // no room to answer the next request
  std::atomic<bool> waits_for_word_{false};
  std::atomic<bool> waits_for_turn_{false};
  std::atomic<bool> unsent_{false};
  std::atomic<bool> acknowledgement_due_{false};
  std::atomic<uint32_t> polls_{0};
  uint32_t polls_at_wake_ = 0;
  uint64_t silent_since_ns_ = 0;
};

}  // namespace braid::vhca::soft::tcp
