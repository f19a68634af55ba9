// A TcpStream between a socket that is a buffer and a QP that remembers: for tests and the fuzzer.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/linux_host.h"
#include "base/log.h"
#include "vhca/soft/remote_check.h"
#include "vhca/soft/tcp/stream.h"

namespace braid::vhca::soft::tcp::fake {

/// What the peer sent stands in `incoming`; what goes to it comes to `outgoing`.
class Socket final : public base::StreamSocket {
 public:
  base::Errc connected() override { return base::Errc::kOk; }
  base::Errc send(std::span<const iovec> pieces, size_t& sent) override {
    if (send_ended) std::abort();  // a bug of the stream
    if (send_error != base::Errc::kOk) return send_error;
    if (send_room == 0) return base::Errc::kWouldBlock;
    sent = 0;
    for (const iovec& piece : pieces) {
      const size_t bytes = std::min(piece.iov_len, send_room);
      const auto* const from = static_cast<const std::byte*>(piece.iov_base);
      outgoing.insert(outgoing.end(), from, from + bytes);
      sent += bytes;
      send_room -= bytes;
    }
    return base::Errc::kOk;
  }
  base::Errc receive(std::span<const iovec> pieces, size_t& received) override {
    if (incoming.empty()) return ended ? base::Errc::kDisconnected : base::Errc::kWouldBlock;
    received = 0;
    size_t room = receive_max;
    for (const iovec& piece : pieces) {
      const size_t bytes = std::min({piece.iov_len, incoming.size(), room});
      std::copy_n(incoming.begin(), bytes, static_cast<std::byte*>(piece.iov_base));
      incoming.erase(incoming.begin(), incoming.begin() + static_cast<ptrdiff_t>(bytes));
      received += bytes;
      room -= bytes;
    }
    return base::Errc::kOk;
  }
  void shut_down_send() override { send_ended = true; }
  void shut_down() override { send_ended = ended = true; }
  void set_user_timeout(uint64_t) override {}
  base::SocketAddress local() const override { return {}; }
  base::SocketAddress peer() const override { return {}; }
  const base::Handle& handle() const override { return *none; }

  std::deque<std::byte> incoming;
  std::vector<std::byte> outgoing;
  size_t send_room = SIZE_MAX;
  base::Errc send_error = base::Errc::kOk;  // the peer has closed
  size_t receive_max = SIZE_MAX;
  bool ended = false;
  bool send_ended = false;
  std::unique_ptr<base::Handle> none;
};

/// A QP that has one registration, `memory` under kKey, and as many receives as `receives`. It
/// aborts where a stream breaks a rule that the core relies on.
class End final : public LockedEnd {
 public:
  static constexpr uint32_t kKey = 77;
  base::Status start_sending_locked() override {
    started = true;
    return base::ok_status();
  }
  Answer respond_locked(const Request& request, std::span<const std::byte> payload,
                        std::span<const std::byte>* result) override {
    const Answer early = look(request);
    if (early.kind != Answer::Kind::kAck) return early;
    require(is_read(request.opcode) || is_atomic(request.opcode) ||
            payload.size() == request.length);
    if (is_read(request.opcode)) {
      *result = readable(request);
    } else if (is_atomic(request.opcode)) {
      if (claimed_looks > 0) {
        --claimed_looks;
        if (at_claimed_word) at_claimed_word();
        return {.kind = Answer::Kind::kBusy};
      }
      std::memcpy(&word, at(request), sizeof word);
      *result = std::as_bytes(std::span(&word, 1));
    } else if (is_write(request.opcode) && !payload.empty()) {
      std::memcpy(at(request), payload.data(), payload.size());
    }
    return respond_landed(request);
  }
  Answer land(const Request& request, bool, Landing& landing) override {
    const Answer early = look(request);
    if (early.kind != Answer::Kind::kAck) return early;
    landing.count = 0;
    if (is_send(request.opcode)) {
      if (request.length > received.size()) return refuse(IBV_WC_REM_INV_REQ_ERR);
      // In two pieces, the second of 3 bytes.
      landing.pieces[landing.count++] = {received.data(), request.length - 3};
      landing.pieces[landing.count++] = {received.data() + request.length - 3, 3};
      return {};
    }
    landing.pieces[landing.count++] = {at(request), request.length};
    return {};
  }
  Answer respond_landed(const Request& request) override {
    require(request.sequence == expected && !closed);
    ++expected;
    if (needs_receive(request.opcode)) --receives;
    executed.push_back(request.opcode);
    return {};
  }
  std::span<const std::byte> readable(const Request& request) override {
    if (!registered || !holds(request)) return {};
    return {at(request), request.length};
  }
  void answered_locked(uint64_t sequence, const Answer& answer,
                       std::span<const std::byte> data) override {
    require(!closed && sequence == answered && sequence < posted);
    if (answer.kind == Answer::Kind::kError) return fail();
    if (answer.kind == Answer::Kind::kNoReceive) {
      ++not_received;
      executed_to = sequence;
      return;
    }
    Slot& slot = slots[sequence % kSlots];
    if (returns_data(slot.request.opcode)) {
      require(answer.landed || data.size() == slot.request.length);
    }
    ++answered;
    slot = {};  // as the core's, which the next request takes: nothing may refer to it any more
  }
  void broken_locked() override {
    broken = true;
    fail();
  }
  void disconnected_locked() override {
    disconnected = true;
    fail();
  }

  /// Hands over what was posted, and after RNR again all from there on.
  void hand_over() {
    if (answered == gone && !closed) fail();
    while (!closed && executed_to < std::min(posted, gone)) {
      const Request& request = slots[executed_to % kSlots].request;
      if (stream->execute(request).outcome != Outcome::kSent) return;
      ++executed_to;
    }
    stream->flush(*this);
  }
  bool stand(std::span<const Piece>, bool) const override { return own_registered; }
  bool sleeps() const override { return false; }
  void memory_gone_locked(uint64_t sequence) override {
    require(!closed && sequence >= answered && sequence < posted);
    if (sequence >= executed_to) return;  // it waits to go again, as the core's, and is seen then
    executed_to = gone = sequence;
    if (answered == gone) fail();
  }

  void refused_locked(ibv_wc_status status, std::string_view) override {
    require(!closed);
    refused = status;
    fail();
  }

  static void require(bool condition) {
    if (!condition) std::abort();
  }
  void fail() {
    closed = true;
    if (stream != nullptr) stream->close();
  }
  Answer refuse(ibv_wc_status status) {
    fail();
    return {.kind = Answer::Kind::kError, .status = status};
  }
  bool holds(const Request& request) const {
    const auto begin = reinterpret_cast<uint64_t>(memory.data());
    return request.rkey == kKey && request.remote_address >= begin &&
           request.length <= memory.size() &&
           request.remote_address - begin <= memory.size() - request.length;
  }
  static std::byte* at(const Request& request) {
    return reinterpret_cast<std::byte*>(request.remote_address);
  }
  Answer look(const Request& request) {
    require(!closed);
    if (request.sequence != expected) return {.kind = Answer::Kind::kOutOfSequence};
    if (needs_receive(request.opcode) && receives == 0) {
      return {.kind = Answer::Kind::kNoReceive, .rnr_timer = 12};
    }
    if (!is_send(request.opcode) && request.length > 0 && (!registered || !holds(request))) {
      return refuse(IBV_WC_REM_ACCESS_ERR);
    }
    return {};
  }

  TcpStream* stream = nullptr;
  std::vector<std::byte> memory = std::vector<std::byte>(128 * 1024);
  std::vector<std::byte> received = std::vector<std::byte>(64 * 1024);
  uint64_t word = 0;
  int receives = 4;
  bool registered = true;
  bool own_registered = true;  // what our requests name
  uint64_t gone = UINT64_MAX;  // the request whose memory went
  uint64_t expected = 0;
  uint64_t answered = 0;
  uint64_t posted = 0;
  uint64_t executed_to = 0;  // requests below have been handed to the stream
  static constexpr size_t kSlots = 16;
  struct Slot {
    Request request;
    Piece piece{nullptr, 0};
  };
  std::array<Slot, kSlots> slots;  // of the requests that are posted and not answered
  std::vector<ibv_wr_opcode> executed;
  int not_received = 0;
  ibv_wc_status refused = IBV_WC_SUCCESS;  // by the stream
  uint32_t claimed_looks = 0;              // so often somebody is at the word of an atomic
  std::function<void()> at_claimed_word;   // in the middle of such a look
  bool started = false;
  bool broken = false;
  bool disconnected = false;
  bool closed = false;
};

class Events final : public StreamEvents {
 public:
  void want_read() override { wants_read = true; }
  void want_write() override { wants_write = true; }
  void acknowledge_later() override { later = true; }
  void ports_changed() override { ++port_words; }
  void word_is_claimed() override { ++claimed_words; }
  void may_receive() override { ++turns; }
  void peer_ready() override { ready = true; }
  void over(base::Errc reason) override {
    End::require(why == base::Errc::kOk);
    why = reason;
  }
  bool wants_read = false;
  bool wants_write = false;
  bool later = false;
  bool ready = false;
  uint64_t port_words = 0;
  uint64_t claimed_words = 0;
  uint64_t turns = 0;  // given by a budget
  base::Errc why = base::Errc::kOk;
};

/// All of it put together, established.
class Party {
 public:
  static constexpr uint32_t kEpoch = 0x12345678;
  /// `port`: of a device whose ports may be made to fail.
  explicit Party(base::Host& host, bool awaits_ready = false, std::shared_ptr<Port> port = nullptr)
      : stream(host, socket, events, std::make_shared<Activity>(),
               {.epoch = kEpoch,
                .sends_max = 16,
                .awaits_ready = awaits_ready,
                .peer_text = "x",
                .port = std::move(port)}) {
    end.stream = &stream;
  }
  void run() {
    stream.run(&end, /*woken=*/true);
    end.hand_over();
  }
  /// As the core does. kFull: as many as it holds are not answered yet.
  Outcome post(ibv_wr_opcode opcode, uint32_t length) {
    if (end.posted - end.answered >= End::kSlots) return Outcome::kFull;
    End::Slot& slot = end.slots[end.posted % End::kSlots];
    slot.piece = {(returns_data(opcode) ? landing : end.received).data(), length};
    slot.request = {.opcode = opcode,
                    .rkey = 1,
                    .remote_address = 4096,
                    .length = length,
                    .sequence = end.posted++,
                    .pieces = {&slot.piece, 1}};
    end.hand_over();
    return end.executed_to == end.posted ? Outcome::kSent : Outcome::kFull;
  }
  FrameHeader header(FrameKind kind, uint64_t sequence = 0) const {
    FrameHeader made;
    made.magic = kFrameMagic;
    made.version = kFrameVersion;
    made.kind = static_cast<uint8_t>(kind);
    made.epoch = kEpoch;
    made.sequence = sequence;
    return made;
  }
  FrameHeader request(ibv_wr_opcode opcode, uint64_t sequence, uint32_t length) const {
    FrameHeader made = header(FrameKind::kRequest, sequence);
    made.opcode = static_cast<uint8_t>(opcode);
    made.requested = length;
    made.length = bytes_behind(opcode, length);
    made.rkey = End::kKey;
    made.remote_address = reinterpret_cast<uint64_t>(end.memory.data());
    return made;
  }
  /// The peer sends a frame with so much behind it, a pattern.
  void feed(const FrameHeader& header, int seed = 1) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&header);
    socket.incoming.insert(socket.incoming.end(), bytes, bytes + sizeof header);
    for (uint64_t i = 0; i < header.length; ++i) socket.incoming.push_back(pattern(i, seed));
  }
  static std::byte pattern(uint64_t at, int seed) {
    return static_cast<std::byte>((at * 7 + at / 255 + static_cast<uint64_t>(seed)) & 0xff);
  }
  /// The headers of all that went to the peer.
  std::vector<FrameHeader> sent() const {
    std::vector<FrameHeader> frames;
    for (size_t at = 0; at + sizeof(FrameHeader) <= socket.outgoing.size();) {
      std::memcpy(&frames.emplace_back(), socket.outgoing.data() + at, sizeof(FrameHeader));
      at += sizeof(FrameHeader) + frames.back().length;
    }
    return frames;
  }
  FrameKind last_kind() const { return static_cast<FrameKind>(sent().back().kind); }

  std::vector<std::byte> landing = std::vector<std::byte>(128 * 1024);
  Socket socket;
  Events events;
  End end;
  TcpStream stream;
};

}  // namespace braid::vhca::soft::tcp::fake
