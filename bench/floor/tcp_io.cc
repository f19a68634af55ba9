#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "bench/floor/connection.h"
#include "bench/floor/shared_pages.h"
#include "bench/floor/two_processes.h"

namespace braid::bench {
namespace {

// As on the wire; between processes of one host.
struct TcpRequest {
  uint64_t sequence = 0, offset_bytes = 0, length_bytes = 0;
};
struct TcpAnswer {
  uint64_t sequence = 0;
};
static_assert(sizeof(TcpRequest) == 24 && sizeof(TcpAnswer) == 8);

/// All of it, however long the other end takes, without a sleep.
void send_all(const OwnedSocket& socket, std::span<iovec> pieces) {
  Spinner spinner;
  while (!pieces.empty()) {
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t sent = ::sendmsg(socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) socket_failed("sendmsg");
    if (sent < 0) spinner.turn();
    auto bytes = sent < 0 ? 0 : static_cast<size_t>(sent);
    while (!pieces.empty() && bytes >= pieces.front().iov_len) {
      bytes -= pieces.front().iov_len;
      pieces = pieces.subspan(1);
    }
    if (bytes == 0) continue;
    pieces.front().iov_base = static_cast<std::byte*>(pieces.front().iov_base) + bytes;
    pieces.front().iov_len -= bytes;
  }
}

/// What has been received and not been looked at yet.
class Received {
 public:
  explicit Received(size_t room_bytes) : room_(room_bytes) {}
  /// At least a byte more; false: the other end has gone.
  bool more(const OwnedSocket& socket) {
    std::memmove(room_.data(), room_.data() + from_, to_ - from_);
    to_ -= from_;
    from_ = 0;
    const size_t got = socket.receive_some(room_.data() + to_, room_.size() - to_);
    to_ += got;
    return got > 0;
  }
  bool has(size_t bytes) const { return to_ - from_ >= bytes; }
  std::byte* data() { return room_.data() + from_; }
  void take(size_t bytes) { from_ += bytes; }

 private:
  std::vector<std::byte> room_;
  size_t from_ = 0, to_ = 0;
};

class TcpIo : public Candidate {
 public:
  explicit TcpIo(const BlockWork& work)
      : work_(work),
        request_bytes_(sizeof(TcpRequest) + (work.write ? work.block_bytes : 0)),
        answer_bytes_(sizeof(TcpAnswer) + (work.write ? 0 : work.block_bytes)) {}
  std::string name() const override { return "a TCP connection: requests and answers with data"; }
  std::string threads() const override { return "one a side; both spin, no yield"; }

  base::Status prepare(Bench& bench) override {
    sizes_ = block_workload(bench.options);
    store_.emplace(sizes_.store_bytes);
    if (stores_have_huge_pages()) BRAID_ASSERT(store_->make_huge());
    fill_random({store_->data(), store_->size()}, 1);
    return base::ok_status();
  }

  base::Result<Sample> run(Bench& bench) override {
    Listener listener(SocketKind::kTcp);
    return measure_between(
        bench, sizes_.run_ms, [&] { store_->populate(); }, [&] { serve(listener.accept()); },
        [&](pid_t server) { return ask(listener.connect(), server); });
  }

 private:
  size_t room_bytes() const { return 2 * work_.depth * std::max(request_bytes_, answer_bytes_); }

  /// Until the client goes. What came together is answered together, reads out of the store.
  void serve(const OwnedSocket& socket) const {
    Received received(room_bytes());
    std::vector<TcpAnswer> answers(2 * work_.depth);
    std::vector<iovec> pieces;
    pieces.reserve(4 * work_.depth);
    while (received.more(socket)) {
      pieces.clear();
      for (size_t at = 0; received.has(request_bytes_); ++at) {
        TcpRequest request;
        std::memcpy(&request, received.data(), sizeof request);
        std::byte* const block = store_->data() + request.offset_bytes;
        answers[at].sequence = request.sequence;
        pieces.push_back({&answers[at], sizeof answers[at]});
        if (work_.write) {
          std::memcpy(block, received.data() + sizeof request, request.length_bytes);
        } else {
          pieces.push_back({block, request.length_bytes});
        }
        received.take(request_bytes_);
      }
      send_all(socket, pieces);
    }
  }

  Sample ask(const OwnedSocket& socket, pid_t server) const {
    // While the server is at some the others are asked for.
    const unsigned together = std::max(1U, work_.depth / 4);
    Random random(2);
    Received received(room_bytes());
    std::vector<std::byte> requests(work_.depth * request_bytes_);
    unsigned held = 0;  // requests that are not sent yet
    uint64_t posted = 0, answered = 0;
    const uint64_t blocks = sizes_.store_bytes / work_.block_bytes;
    const auto add_request = [&] {
      std::byte* const at = requests.data() + held++ * request_bytes_;
      ++posted;
      const uint64_t block = work_.sequential ? posted % blocks : random.below(blocks);
      const TcpRequest request{.sequence = posted,
                               .offset_bytes = block * work_.block_bytes,
                               .length_bytes = work_.block_bytes};
      std::memcpy(at, &request, sizeof request);
      if (work_.write) make({at + sizeof request, work_.block_bytes}, posted);
    };
    const auto flush = [&] {
      iovec all{requests.data(), held * request_bytes_};
      send_all(socket, {&all, 1});
      held = 0;
    };
    // The oldest ends, and another takes its place.
    const auto operation = [&] {
      add_request();
      if (held == together) flush();
      if (posted - answered < work_.depth) return;
      if (!received.has(answer_bytes_)) flush();
      while (!received.has(answer_bytes_)) {
        if (!received.more(socket)) throw std::runtime_error("the server has gone");
      }
      TcpAnswer answer;
      std::memcpy(&answer, received.data(), sizeof answer);
      if (answer.sequence != ++answered) throw std::runtime_error("a wrong answer");
      received.take(answer_bytes_);
    };
    Sample sample = measure_operations(sizes_.run_ms, sizes_.latency_ms, server, operation);
    sample.value = in_unit_of(work_, sample.value);
    // The time of one operation is no latency where others are under way.
    if (work_.depth > 1) sample.latencies.reset();
    return sample;
  }

  const BlockWork work_;
  const size_t request_bytes_, answer_bytes_;
  BlockWorkload sizes_;
  std::optional<SharedPages> store_;
};

}  // namespace

std::unique_ptr<Candidate> tcp_io(const BlockWork& work) {
  return std::make_unique<TcpIo>(work);
}

}  // namespace braid::bench
