// What tests between processes share: one end on a LinuxHost of its own, with short words.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "vhca/device.h"
#include "vhca/soft_device.h"

namespace braid::vhca::soft::inhost {

/// Where an end's memory can be reached; exchanged as private data.
struct Exposed {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;
};
static_assert(sizeof(Exposed) == 16);

enum class Memory { kSegment, kForeign };
/// kHost: the device of both wires, its peers in-host; kHostTcp: the same, its peers by TCP.
enum class WireKind { kInHost, kTcp, kHost, kHostTcp };

struct PartyOptions {
  Memory memory = Memory::kSegment;
  WireKind wire = WireKind::kInHost;
  ConnectParameters parameters;  // private data is the party's own
  size_t buffer_bytes = 1 << 20;
  uint32_t depth = 64;
  uint64_t poll_budget_ns = 0;
  uint32_t longest_receive_bytes = 0;
};

/// A process's end: host, reactor, device, one buffer, and one QP at a time.
class Party {
 public:
  explicit Party(const PartyOptions& options = {}) : options_(options) {
    base::LinuxHostOptions host_options;
    host_options.log_sink = base::make_null_sink();
    host_options.allow_peer_copy = options.memory == Memory::kForeign;
    host = std::move(*base::create_linux_host(host_options));
    base::Reactor::Options reactor_options;
    reactor_options.poll_budget_ns = options.poll_budget_ns;
    reactor = std::move(*base::Reactor::create(*host, reactor_options));
    device = std::move(*make_device());
    td = device->create_td();
    pd = std::move(*device->alloc_pd());
    if (options.memory == Memory::kSegment) {
      segment = std::move(*host->create_segment(options.buffer_bytes, "test"));
      buffer = {segment->data(), options.buffer_bytes};
    } else {
      heap.resize(options.buffer_bytes);
      buffer = heap;
    }
    register_buffer();
    channel = std::move(*device->create_comp_channel());
    CqOptions cq_options;
    cq_options.capacity = 4096;
    cq_options.channel = channel.get();
    cq_options.td = td.get();
    cq = std::move(*device->create_cq(cq_options));
  }
  ~Party() { drop(); }

  base::Result<std::unique_ptr<Device>> make_device() {
    switch (options_.wire) {
      case WireKind::kInHost:
        return create_soft_device(*host, *reactor);
      case WireKind::kTcp:
        return create_tcp_device(*host, *reactor, {.ip = "127.0.0.1"});
      case WireKind::kHost:
        return create_host_device(*host, *reactor, {.listen_tcp = true});
      case WireKind::kHostTcp:
        return create_host_device(*host, *reactor, {.listen_tcp = true, .tcp_within_host = true});
    }
    BRAID_ASSERT(false);
  }
  void register_buffer() {
    mr = std::move(*pd->reg_mr(buffer.data(), buffer.size(),
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                   IBV_ACCESS_MW_BIND));
  }
  Exposed exposed() const {
    return {reinterpret_cast<uint64_t>(buffer.data()), told_key.value_or(mr->rkey),
            static_cast<uint32_t>(buffer.size())};
  }

  // --- connecting
  uint16_t listen() {
    listener = std::move(*device->listen(*reactor, {.ip = "127.0.0.1"}, 8));
    return listener->address().port;
  }
  void make_qp() {
    QpOptions qp_options;
    qp_options.send_cq = cq.get();
    qp_options.recv_cq = cq.get();
    qp_options.cap.max_send_wr = options_.depth;
    qp_options.cap.max_recv_wr = options_.depth;
    qp_options.td = td.get();
    qp_options.longest_receive_bytes = options_.longest_receive_bytes;
    qp = std::move(*pd->create_qp(qp_options));
    QpAttr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags =
        IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    const base::Status status =
        qp->modify(init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    BRAID_ASSERT(status.ok());
  }
  base::Status connect(uint16_t port, uint64_t timeout_ns = 20 * base::kSecond) {
    const Exposed mine = exposed();
    ConnectParameters parameters = options_.parameters;
    parameters.private_data = std::as_bytes(std::span(&mine, 1));
    const Address address{.ip = "127.0.0.1", .port = port};
    auto result =
        reactor->run_until_done(device->connect(*reactor, *qp, address, parameters, timeout_ns));
    if (!result.ok()) return result.error();
    if (!result.value().connection) return base::make_error(base::Errc::kRefused, "rejected");
    connection = std::move(result.value().connection);
    learn_peer();
    return {};
  }
  base::Status accept() {
    auto request = reactor->run_until_done(listener->next());
    if (!request.ok()) return request.error();
    const Exposed mine = exposed();
    ConnectParameters parameters = options_.parameters;
    parameters.private_data = std::as_bytes(std::span(&mine, 1));
    auto result = reactor->run_until_done(request.value()->accept(*reactor, *qp, parameters));
    if (!result.ok()) return result.error();
    connection = std::move(result).value();
    learn_peer();
    return {};
  }
  void drop() {
    if (connection) connection->disconnect();
    connection.reset();
    qp.reset();
  }

  void learn_peer() {
    const auto data = connection->peer_private_data();
    BRAID_ASSERT(data.size() >= sizeof(peer));
    std::memcpy(&peer, data.data(), sizeof(peer));
  }

  // --- posting; errno
  int post_recv(uint64_t wr_id, size_t offset, uint32_t length) {
    Sge sge{reinterpret_cast<uint64_t>(buffer.data() + offset), length, mr->lkey};
    RecvWr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    const RecvWr* bad = nullptr;
    return qp->post_recv(&wr, &bad);
  }
  int post_send(ibv_wr_opcode opcode, uint64_t wr_id, size_t offset, uint32_t length,
                size_t remote_offset = 0, uint32_t imm = 0) {
    Sge sge{reinterpret_cast<uint64_t>(buffer.data() + offset), length, mr->lkey};
    SendWr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.imm_data = imm;
    wr.wr.rdma.remote_addr = peer.address + remote_offset;
    wr.wr.rdma.rkey = peer.rkey;
    const SendWr* bad = nullptr;
    return qp->post_send(&wr, &bad);
  }

  // --- completions
  /// The next completion; nothing if none comes within half a minute. Turns the reactor meanwhile.
  std::optional<Wc> next() {
    const uint64_t deadline_ns = host->now_ns() + 30 * base::kSecond;
    Wc wc{};
    for (;;) {
      const bool turn = ++nexts_ % 16 == 0;  // as a reactor that is busy polling
      if (turn && !reactor->turn()) host->yield();
      if (cq->poll({&wc, 1}) == 1) return wc;
      if (turn && host->now_ns() > deadline_ns) return std::nullopt;
    }
  }
  /// As next(), but asleep until the channel's event, and never polling without one.
  std::optional<Wc> next_asleep() {
    Wc wc{};
    for (;;) {
      if (cq->poll({&wc, 1}) == 1) return wc;
      cq->arm();
      if (cq->poll({&wc, 1}) == 1) return wc;
      pollfd ready{channel->event().handle().fd(), POLLIN, 0};
      if (::poll(&ready, 1, 0) == 0) {
        ++sleeps;
        if (::poll(&ready, 1, 30'000) != 1) return std::nullopt;
      }
      while (Cq* const with_event = channel->next_event()) with_event->ack_events(1);
    }
  }
  bool run_until(const std::function<bool()>& done) {
    const uint64_t deadline_ns = host->now_ns() + 30 * base::kSecond;
    while (!done()) {
      if (host->now_ns() > deadline_ns) return false;
      if (!reactor->turn()) host->yield();
    }
    return true;
  }

  const PartyOptions options_;
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
  std::unique_ptr<base::Segment> segment;
  std::vector<std::byte> heap;
  std::span<std::byte> buffer;
  std::optional<uint32_t> told_key;  // what peers are told instead of the buffer's
  std::unique_ptr<Device> device;
  std::unique_ptr<Td> td;
  std::unique_ptr<Pd> pd;
  std::unique_ptr<Mr> mr;
  std::unique_ptr<CompChannel> channel;
  std::unique_ptr<Cq> cq;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Qp> qp;
  std::unique_ptr<Connection> connection;
  Exposed peer;
  uint32_t sleeps = 0;

 private:
  uint64_t nexts_ = 0;
};

/// Connects two ends of this process, both on the calling thread; `meanwhile` runs between their
/// turns. False with a test failure.
inline bool connect_pair(Party& client, Party& server,
                         const std::function<void()>& meanwhile = {}) {
  const uint16_t port = server.listen();
  client.make_qp();
  server.make_qp();
  bool accepted = false;
  struct Passive {
    static base::Task<void> accept(Party& party, bool& done) {
      auto request = co_await party.listener->next();
      const Exposed mine = party.exposed();
      ConnectParameters parameters;
      parameters.private_data = std::as_bytes(std::span(&mine, 1));
      auto result = co_await request.value()->accept(*party.reactor, *party.qp, parameters);
      EXPECT_TRUE(result.ok());
      if (!result.ok()) co_return;
      party.connection = std::move(result).value();
      party.learn_peer();
      done = true;
    }
    static base::Task<void> connect(Party& party, uint16_t port) {
      const Exposed mine = party.exposed();
      ConnectParameters parameters;
      parameters.private_data = std::as_bytes(std::span(&mine, 1));
      const Address address{.ip = "127.0.0.1", .port = port};
      auto result = co_await party.device->connect(*party.reactor, *party.qp, address, parameters,
                                                   20 * base::kSecond);
      EXPECT_TRUE(result.ok());
      if (!result.ok()) co_return;
      party.connection = std::move(result.value().connection);
      party.learn_peer();
    }
  };
  server.reactor->spawn(Passive::accept(server, accepted));
  client.reactor->spawn(Passive::connect(client, port));
  const bool done = client.run_until([&] {
    server.reactor->turn();
    if (meanwhile) meanwhile();
    return accepted && client.connection;
  });
  EXPECT_TRUE(done);
  return done;
}

/// A forked process; killed if it still runs when the test ends.
class Child {
 public:
  /// `body` gets a function that tells the parent one number; its value is the exit status.
  explicit Child(const std::function<int(const std::function<void(uint32_t)>&)>& body) {
    std::array<int, 2> ends{};
    BRAID_ASSERT(::pipe(ends.data()) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      const int status = body([&](uint32_t number) {
        BRAID_ASSERT(::write(ends[1], &number, sizeof(number)) == sizeof(number));
      });
      ::_exit(status);
    }
    ::close(ends[1]);
    from_child_ = ends[0];
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      (void)wait();
    }
    ::close(from_child_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  uint32_t number() const {
    uint32_t value = 0;
    EXPECT_EQ(::read(from_child_, &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
    return value;
  }
  /// Whether there is a number to take.
  bool told() const {
    pollfd ready{from_child_, POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  }
  void signal(int number) const { ::kill(pid_, number); }
  /// Waits until the process is stopped; false if it ended instead.
  bool wait_stopped() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    if (WIFSTOPPED(status)) return true;
    pid_ = -1;
    return false;
  }
  /// The exit status, or 128 + signal.
  int wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  int from_child_ = -1;
};

/// All segments of a purpose that this process has mapped: its own and its peers'.
inline std::vector<std::span<std::byte>> mappings_of(const std::string& purpose) {
  std::vector<std::span<std::byte>> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:" + purpose) == std::string::npos) continue;
    const size_t dash = line.find('-');
    const uint64_t begin = std::stoull(line.substr(0, dash), nullptr, 16);
    const uint64_t end = std::stoull(line.substr(dash + 1), nullptr, 16);
    found.emplace_back(reinterpret_cast<std::byte*>(begin), end - begin);
  }
  return found;
}

inline size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

}  // namespace braid::vhca::soft::inhost
