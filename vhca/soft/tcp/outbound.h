// Outbound: the frames of one connection that wait for the socket, and their sending.
//
// A ring of fixed size. Data is not copied: it is sent from the pieces of a send work request
// (valid until its answer), or from memory that the peer reads. Either is looked up again for each
// system call. The header's `acknowledged` is filled in when its first byte goes.
//
// Threads: as TcpStream.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/stream_socket.h"
#include "vhca/soft/tcp/frames.h"
#include "vhca/soft/wire.h"

namespace braid::vhca::soft::tcp {

class Outbound {
 public:
  /// Holds `requests_max` requests and, beside them, what answers the peer.
  Outbound(base::StreamSocket& socket, uint32_t requests_max);

  void set_epoch(uint32_t epoch) { epoch_ = epoch; }
  bool empty() const { return head_ == tail_; }
  /// Whether flush() has anything to do.
  bool sendable() { return tail_ != limit() || urgent_left_ > 0; }
  bool room_for_request() const { return count() + kAnswers <= mask_ + 1; }
  /// For what answers one request of the peer.
  bool room_for_answer() const { return count() + kLastWords < mask_ + 1; }
  /// Whether something is queued of which nothing has been sent, so that an acknowledgement rides.
  bool carries_acknowledgement() const { return count() > (offset_ > 0 ? 1u : 0u); }

  /// Responses to READs and atomics of the peer that have not gone.
  uint32_t responses() const { return responses_; }

  // --- faults of our port: what has begun to go goes on
  enum class Hold : uint8_t { kNone, kAll, kUntilDue };
  /// kUntilDue: frames that are pushed from now on are kept for the delay, those that were pushed
  /// with one until it is over at `now_ns`.
  void hold(Hold hold, uint64_t now_ns, uint64_t delay_ns);
  /// Tells the peer of it, ahead of what is held. False: the word before is half sent.
  bool push_port(bool loses);

  void push(FrameKind kind, uint64_t sequence = 0);
  void push_request(const Request& request);
  void push_error(uint64_t sequence, ibv_wc_status status);
  void push_no_receive(uint64_t sequence, uint8_t rnr_timer);
  /// With the word before, of an atomic.
  void push_response(const Request& request, std::span<const std::byte> word);
  void push_read_response(const Request& request);

  /// Sends until all is gone, or `most` bytes, or the socket takes no more
  /// (kWouldBlock). `executed` is what is acknowledged to the peer. `end` looks up memory; kStale:
  /// that of the oldest frame, a request or the response to a READ, is gone. `sent`: bytes that
  /// the socket took.
  base::Errc flush(LockedEnd* end, uint64_t executed, uint64_t most, uint64_t& sent);
  /// After kStale: whether part of the frame has gone already.
  bool oldest_begun() const { return offset_ > 0; }
  /// After kStale: the request that the oldest frame is.
  std::optional<uint64_t> oldest_request();
  /// After kStale, if none has gone: the READ is refused instead.
  void refuse_oldest(ibv_wc_status status);
  /// ..., or the request and all behind it are dropped. False: it was one from before the core went
  /// back, for nothing anyway, and is dropped alone.
  bool drop_requests();
  /// What the peer has been told to be executed.
  uint64_t told() const { return told_; }

  // --- what the peer can know of: it may not answer anything else
  /// Requests below have been handed to the socket whole; it may have executed them.
  uint64_t requests_sent() const { return requests_sent_; }
  /// The headers of those below, at least; it may have refused them.
  uint64_t requests_begun() const { return requests_begun_; }
  /// The peer met no receive for `sequence`: that one and all behind it are pushed again. What is
  /// still queued of them is for nothing.
  void go_back(uint64_t sequence);

  /// Drops all that needs memory of others. False if such a frame is in the middle of being sent:
  /// nothing can follow it.
  bool drop_data();

 private:
  // Answers that the peer may have under way: its READs and atomics, and what ends the link.
  static constexpr uint32_t kLastWords = 3;
  static constexpr uint32_t kAnswers = 16 + 1 + kLastWords + 1;
  enum class Body : uint8_t { kNone, kInline, kPieces, kMemory };
  struct Frame {
    FrameHeader header;
    std::byte bytes[sizeof(Operands)];  // kInline
    std::span<const Piece> pieces;      // kPieces
    Request read;                       // kMemory
    Body body = Body::kNone;
    uint32_t round = 0;  // of a request: how often the core had gone back
    uint64_t due_ns = 0;
  };
  struct Gathered {
    iovec iov[64];
    uint32_t count = 0;
    uint64_t bytes = 0;
    bool full() const { return count + 18 > 64 || bytes >= kBytesPerCall; }
    void add(const void* data, size_t length) {
      if (length == 0) return;
      iov[count++] = {const_cast<void*>(data), length};
      bytes += length;
    }
    void trim(uint64_t bytes_max) {
      while (bytes > bytes_max) {
        const uint64_t taken = std::min<uint64_t>(bytes - bytes_max, iov[count - 1].iov_len);
        iov[count - 1].iov_len -= taken;
        bytes -= taken;
        if (iov[count - 1].iov_len == 0) --count;
      }
    }
  };
  static constexpr uint64_t kBytesPerCall = 1 << 20;

  uint32_t count() const { return head_ - tail_; }
  Frame& frame(uint32_t at) { return frames_[at & mask_]; }
  /// Frames before it may be sent now.
  uint32_t limit() {
    const bool all = hold_ == Hold::kNone && urgent_left_ == 0;
    return all ? head_ : held_limit();
  }
  uint32_t held_limit();
  base::Errc send_urgent();
  void drop_oldest();
  template <typename Keeps>
  void keep(uint32_t from, Keeps&& keeps);
  static bool is(const Frame& frame, FrameKind kind) {
    return frame.header.kind == static_cast<uint8_t>(kind);
  }
  Frame& add(FrameKind kind, uint64_t sequence, Body body);
  bool gather(Gathered& out, LockedEnd* end, uint64_t executed);
  bool gather_body(Frame& frame, uint64_t skip, Gathered& out, LockedEnd* end);
  void count_sent(uint64_t bytes);
  void count_request(const Frame& frame);

  base::StreamSocket& socket_;
  const uint32_t mask_;
  const std::unique_ptr<Frame[]> frames_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  uint32_t responses_ = 0;  // frames of kResponse
  uint64_t offset_ = 0;     // bytes of the oldest that have been sent
  uint64_t told_ = 0;
  uint64_t requests_sent_ = 0;
  uint64_t requests_begun_ = 0;
  uint32_t round_ = 0;
  uint32_t epoch_ = 0;
  Hold hold_ = Hold::kNone;
  uint64_t now_ns_ = 0;  // kUntilDue
  uint64_t due_ns_ = 0;  // ..., of what is pushed
  FrameHeader urgent_;
  size_t urgent_left_ = 0;  // bytes of it that have not gone
};

}  // namespace braid::vhca::soft::tcp
