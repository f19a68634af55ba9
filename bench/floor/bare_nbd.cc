#include "bench/floor/bare_nbd.h"

#include <endian.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <stdexcept>

#include "bench/floor/shared_pages.h"

namespace braid::bench {
namespace {

constexpr uint16_t kCommandRead = 0, kCommandWrite = 1, kCommandDisconnect = 2;
constexpr uint32_t kOptionGo = 7, kOptionStructuredReply = 8;
constexpr uint32_t kOptionDone = 1, kOptionInfo = 3, kOptionUnsupported = (1U << 31) + 1;
// As many answers go together as Braid's server sends: with more fio's engine idles for a while.
constexpr size_t kAnswersTogether = 4;
// After a longer write only a header is received: its data goes from the socket to the store.
constexpr uint32_t kLongBytes = 32 << 10;
constexpr int kSendBufferBytes = 1 << 20;  // an answer is one call
constexpr int kNbdStartMs = 30'000;

// As on the wire.
struct __attribute__((packed)) NbdAsk {
  uint32_t magic;
  uint16_t flags, command;
  uint64_t cookie, offset;
  uint32_t length;
};
struct __attribute__((packed)) NbdReply {
  uint32_t magic = htobe32(0x67446698);
  uint32_t error = 0;
  uint64_t cookie = 0;
};
// Of a read, before its data: one chunk, the last.
struct __attribute__((packed)) NbdDataReply {
  uint32_t magic = htobe32(0x668e33ef);
  uint16_t flags = htobe16(1), type = htobe16(1);
  uint64_t cookie = 0;
  uint32_t length = 0;  // of the offset and the data
  uint64_t offset = 0;
};
struct __attribute__((packed)) NbdGreeting {
  std::array<char, 16> magic = {'N', 'B', 'D', 'M', 'A', 'G', 'I', 'C',
                                'I', 'H', 'A', 'V', 'E', 'O', 'P', 'T'};
  uint16_t flags = htobe16(1 | 2);  // fixed newstyle, no zeroes
};
struct __attribute__((packed)) NbdOption {
  uint64_t magic;
  uint32_t number, length;
};
struct __attribute__((packed)) NbdOptionReply {
  uint64_t magic = htobe64(0x3e889045565a9);
  uint32_t number = 0;  // as it came
  uint32_t type = 0, length = 0;
};
struct __attribute__((packed)) NbdExportInfo {
  NbdOptionReply reply;
  uint16_t kind = 0;  // size and flags
  uint64_t size_bytes = 0;
  uint16_t flags = htobe16(1 | 4);  // there are flags, and flushes
};
static_assert(sizeof(NbdAsk) == 28 && sizeof(NbdReply) == 16 && sizeof(NbdDataReply) == 28);
static_assert(sizeof(NbdGreeting) == 18 && sizeof(NbdOption) == 16 && sizeof(NbdExportInfo) == 32);

[[noreturn]] void give_up(const char* call) {
  throw std::runtime_error(base::sys_error(errno, call).message());
}

template <typename T>
bool receive_all(int socket, T& into) {
  return recv(socket, &into, sizeof into, MSG_WAITALL) == ssize_t{sizeof into};
}
template <typename T>
bool send_all(int socket, const T& what) {
  return send(socket, &what, sizeof what, MSG_NOSIGNAL) == ssize_t{sizeof what};
}

/// As much of fixed newstyle as a client needs that asks for structured replies, as fio's does: its
/// reads take two calls more than with simple ones, and the peer and Braid give it those, too.
bool shake_hands(int client, uint64_t size_bytes) {
  uint32_t client_flags = 0;
  if (!send_all(client, NbdGreeting{}) || !receive_all(client, client_flags)) return false;
  bool structured = false;
  for (;;) {
    NbdOption option;
    if (!receive_all(client, option)) return false;
    std::array<std::byte, 4096> data;
    const uint32_t length = be32toh(option.length);
    if (length > data.size()) return false;
    if (length > 0 && recv(client, data.data(), length, MSG_WAITALL) != ssize_t{length})
      return false;
    NbdOptionReply reply{.number = option.number};
    const uint32_t number = be32toh(option.number);
    if (number == kOptionGo && !structured) return false;
    if (number == kOptionGo) {
      NbdExportInfo info{.reply = reply, .size_bytes = htobe64(size_bytes)};
      info.reply.type = htobe32(kOptionInfo);
      info.reply.length = htobe32(sizeof info - sizeof reply);
      reply.type = htobe32(kOptionDone);
      return send_all(client, info) && send_all(client, reply);
    }
    structured |= number == kOptionStructuredReply;
    const bool taken = number == kOptionStructuredReply;
    reply.type = htobe32(taken ? kOptionDone : kOptionUnsupported);
    if (!send_all(client, reply)) return false;
  }
}

/// Requests of one connection, and their answers.
class Transmission {
 public:
  Transmission(int socket, std::span<std::byte> store, bool yields)
      : socket_(socket), store_(store), yields_(yields) {}
  /// Until the client goes.
  void run() {
    while (receive()) {
      size_t at = 0;
      while (have_ - at >= sizeof(NbdAsk)) {
        NbdAsk request;
        std::memcpy(&request, input_.data() + at, sizeof request);
        at += sizeof request;
        if (!execute(request, at)) return;
      }
      std::memmove(input_.data(), input_.data() + at, have_ - at);
      have_ -= at;
      send_answers();
    }
  }

 private:
  bool receive() {
    const size_t room = long_ ? sizeof(NbdAsk) - have_ : input_.size() - have_;
    const ssize_t got = receive_some(input_.data() + have_, room);
    if (got > 0) have_ += static_cast<size_t>(got);
    return got > 0;
  }
  /// At least a byte, without a sleep; 0 or less: the client has gone.
  ssize_t receive_some(std::byte* to, size_t bytes) const {
    for (;;) {
      const ssize_t got = recv(socket_, to, bytes, MSG_DONTWAIT);
      if (got >= 0 || errno != EAGAIN) return got;
      if (yields_) sched_yield();
    }
  }

  bool execute(const NbdAsk& request, size_t& at) {
    const uint32_t length = be32toh(request.length);
    const uint16_t command = be16toh(request.command);
    std::byte* const place = store_.data() + be64toh(request.offset);
    if (command == kCommandDisconnect) return false;
    long_ = command == kCommandWrite && length > kLongBytes;
    if (command == kCommandWrite && !take_payload(place, length, at)) return false;
    if (command == kCommandRead) {
      add_data(request, place, length);
    } else {
      NbdReply& reply = replies_[answers_];
      reply.cookie = request.cookie;
      add_piece(&reply, sizeof reply);
    }
    if (++answers_ == kAnswersTogether) send_answers();
    return true;
  }
  void add_data(const NbdAsk& request, std::byte* place, uint32_t length) {
    NbdDataReply& reply = data_replies_[answers_];
    reply.cookie = request.cookie;
    reply.offset = request.offset;
    reply.length = htobe32(length + sizeof reply.offset);
    add_piece(&reply, sizeof reply);
    add_piece(place, length);
  }
  bool take_payload(std::byte* place, size_t length, size_t& at) {
    const size_t here = std::min(length, have_ - at);
    std::memcpy(place, input_.data() + at, here);
    at += here;
    for (size_t done = here; done < length;) {
      const ssize_t got = receive_some(place + done, length - done);
      if (got <= 0) return false;
      done += static_cast<size_t>(got);
    }
    return true;
  }

  void add_piece(void* from, size_t bytes) { pieces_[pieces_count_++] = {from, bytes}; }
  void send_answers() {
    std::span<iovec> left = std::span(pieces_).first(pieces_count_);
    while (!left.empty()) {
      msghdr message{};
      message.msg_iov = left.data();
      message.msg_iovlen = left.size();
      const ssize_t sent = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) {
        if (yields_) sched_yield();
        continue;
      }
      if (sent < 0) break;  // the client has gone, as the next receive finds
      auto bytes = static_cast<size_t>(sent);
      while (!left.empty() && bytes >= left.front().iov_len) {
        bytes -= left.front().iov_len;
        left = left.subspan(1);
      }
      if (left.empty()) break;
      left.front().iov_base = static_cast<std::byte*>(left.front().iov_base) + bytes;
      left.front().iov_len -= bytes;
    }
    pieces_count_ = answers_ = 0;
  }

  const int socket_;
  const std::span<std::byte> store_;
  const bool yields_;
  std::array<std::byte, 256 << 10> input_;  // as far as have_
  size_t have_ = 0;
  bool long_ = false;
  std::array<NbdReply, kAnswersTogether> replies_;
  std::array<NbdDataReply, kAnswersTogether> data_replies_;
  size_t answers_ = 0;
  std::array<iovec, 2 * kAnswersTogether> pieces_;  // as far as pieces_count_
  size_t pieces_count_ = 0;
};

/// A socket that listens.
int listen_at(const std::string& path) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) give_up("socket");
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    give_up("bind");
  if (listen(listener, 4) != 0) give_up("listen");
  return listener;
}

/// One client after the other, for as long as the process lives.
void serve_each(int listener, std::span<std::byte> store, bool yields) {
  for (;;) {
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) give_up("accept");
    // As root whatever the host's limit is.
    if (setsockopt(client, SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes, sizeof(int)) != 0)
      setsockopt(client, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(int));
    if (shake_hands(client, store.size())) Transmission(client, store, yields).run();
    close(client);
  }
}

class BareNbd : public FioTarget {
 public:
  explicit BareNbd(Placement placement) : placement_(placement) {}
  std::string name() const override { return "fio nbd engine on a bare server, unix socket"; }
  std::string threads() const override {
    return placement_ == Placement::kEither
               ? "fio's job sleeps; the server (on either CPU) spins, and yields"
               : "fio's job sleeps; the server spins, no yield";
  }

  base::Status start(Bench& bench, uint64_t store_bytes) override {
    const std::string path = bench.scratch.path("bare-nbd.sock");
    unlink(path.c_str());
    BRAID_TRY(
        server_, Process::call(bench.interrupts, bench.cpus.server, [&](Channel& channel) {
          pin_to(cpus_of(bench.cpus, placement_));
          const SharedPages store(store_bytes);
          store.populate();
          const int listener = listen_at(path);
          channel.send({{"ready", true}});
          serve_each(listener, {store.data(), store.size()}, placement_ == Placement::kEither);
        }));
    BRAID_TRY(const auto ready, server_->receive(kNbdStartMs));
    uri_ = "nbd+unix:///?socket=" + path;
    return base::ok_status();
  }
  std::vector<std::string> engine() const override { return {"--ioengine=nbd", "--uri=" + uri_}; }
  std::vector<pid_t> servers() const override { return {server_->pid()}; }

 private:
  const Placement placement_;
  std::string uri_;
  std::optional<Process> server_;
};

}  // namespace

std::unique_ptr<FioTarget> bare_nbd(Placement placement) {
  return std::make_unique<BareNbd>(placement);
}

}  // namespace braid::bench
