// A client that writes into a chunk after its request has arrived, on the wires between threads of
// this process: shared memory and TCP. The simulated wire is in chunk_guard_test.cc.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "base/linux_host.h"
#include "trs/client.h"
#include "trs/late_writer_device.h"
#include "trs/server.h"
#include "vhca/soft_device.h"

namespace braid::trs {
namespace {

using base::Errc;

constexpr uint32_t kGuardedBytes = 4096;

class Thread {
 public:
  explicit Thread(base::Host& host, const char* name) {
    reactor = std::move(*base::Reactor::create(host, {.name = name}));
    thread_ = std::move(*host.start_thread(name, [this] { reactor->run(); }));
  }
  ~Thread() {
    reactor->stop();
    thread_.reset();
  }
  void on(const std::function<void()>& function) {
    std::promise<void> done;
    reactor->post([&] {
      function();
      done.set_value();
    });
    done.get_future().wait();
  }
  void await(const std::function<base::Task<void>()>& make) {
    std::promise<void> done;
    reactor->post([&] { reactor->spawn(keep(make(), done)); });
    done.get_future().wait();
  }
  std::unique_ptr<base::Reactor> reactor;

 private:
  static base::Task<void> keep(base::Task<void> task, std::promise<void>& done) {
    co_await std::move(task);
    done.set_value();
  }
  std::unique_ptr<base::Thread> thread_;
};

/// Keeps writes until it is told to store them; where each was is in its header.
class SlowDisk final : public ServerUser {
 public:
  void session_opened(ServerSession& session) override { guards = session.path_guards(); }
  void session_closed(ServerSession&) override {}
  void request(ServerRequest& request) override {
    held.push_back(&request);
    ++arrived;
    if (flows) store_all();
  }
  void store_all() {
    flows = true;
    while (!held.empty()) {
      ServerRequest& request = *held.back();
      held.pop_back();
      uint64_t place = 0;
      std::memcpy(&place, request.user_header.data(), sizeof(place));
      std::memcpy(bytes.data() + place * kGuardedBytes, request.data.data(), request.data.size());
      request.answer(Errc::kOk);
    }
  }
  std::vector<ServerRequest*> held;
  std::atomic<unsigned> arrived{0};
  bool flows = false;
  std::vector<ChunkGuard> guards;
  std::vector<std::byte> bytes = std::vector<std::byte>(2 * kGuardedBytes);
};

class Client final : public SessionUser {
 public:
  base::Task<base::Status> reconnected() override { co_return base::Status(); }
  void disconnected(const base::Error&) override { ++lost; }
  std::atomic<unsigned> lost{0};
};

struct Write {
  ClientRequest request;
  uint64_t place = 0;
  std::promise<Errc> ended;
};

/// Wire, guard.
class LateWriterOnAWire : public ::testing::TestWithParam<std::tuple<const char*, ChunkGuard>> {
 protected:
  LateWriterOnAWire() {
    server_thread_.on([&] {
      server_device_ = make_device(*server_thread_.reactor);
      ServerOptions options;
      options.listen = {"127.0.0.1", 0};
      options.reactors = {server_thread_.reactor.get()};
      options.queue_depth = 8;
      options.max_io_bytes = 16 << 10;
      options.heartbeat.interval_ns = 10 * base::kSecond;
      options.guard = std::get<1>(GetParam());
      server_ = std::move(*Server::create(*server_device_, options, disk_));
    });
    client_thread_.on([&] {
      client_device_ = std::make_unique<testing::LateWriterDevice>(
          make_device(*client_thread_.reactor), kGuardedBytes);
      domain_ = std::move(*Domain::create(*client_device_));
      memory_ = std::move(*host_->create_segment(kBufferBytes, "test"));
      mr_ = std::move(
          *domain_->register_memory(memory_->data(), kBufferBytes, IBV_ACCESS_LOCAL_WRITE));
    });
    client_thread_.await([this] { return open(); });
  }
  ~LateWriterOnAWire() override {
    client_thread_.await([this] { return session_->close(); });
    client_thread_.on([&] {
      session_.reset();
      mr_.reset();
      domain_.reset();
      client_device_.reset();
    });
    server_thread_.await([this] { return server_->stop(); });
    server_thread_.on([&] {
      server_.reset();
      server_device_.reset();
    });
  }
  base::Task<void> open() {
    ClientOptions options;
    options.session_name = "late";
    options.server = server_->address();
    options.reactors = {client_thread_.reactor.get()};
    options.heartbeat.interval_ns = 10 * base::kSecond;
    Domain& all = *domain_;
    SessionUser& user = client_;
    auto opened = co_await ClientSession::open(all, options, user);
    BRAID_ASSERT(opened.ok());
    session_ = std::move(*opened);
  }
  std::unique_ptr<vhca::Device> make_device(base::Reactor& reactor) {
    const bool tcp = std::string_view(std::get<0>(GetParam())) == "Tcp";
    const vhca::TcpDeviceOptions options{.name = "tcp0", .ip = "127.0.0.1"};
    auto device = tcp ? vhca::create_tcp_device(*host_, reactor, options)
                      : vhca::create_soft_device(*host_, reactor);
    BRAID_ASSERT(device.ok());
    return std::move(*device);
  }
  static std::unique_ptr<base::Host> make_host() {
    base::LinuxHostOptions options;
    options.log_level = base::LogLevel::kError;
    return std::move(*base::create_linux_host(options));
  }
  std::byte* buffer(size_t index) { return memory_->data() + index * kGuardedBytes; }
  void submit(Write& write, uint64_t place) {
    client_thread_.on([&] {
      write.place = place;
      write.request.direction = Direction::kWrite;
      write.request.user_header = std::as_bytes(std::span(&write.place, 1));
      write.request.data = {mr_.get(), buffer(place), kGuardedBytes};
      write.request.context = &write;
      write.request.done = [](ClientRequest& request, Errc status) {
        static_cast<Write*>(request.context)->ended.set_value(status);
      };
      write.request.permit = session_->queue(0).acquire();
      session_->queue(0).submit(write.request);
    });
  }
  bool stored(uint64_t place, uint8_t fill) {
    bool all = false;
    server_thread_.on([&] {  // whose disk it is
      const auto there = std::span(disk_.bytes).subspan(place * kGuardedBytes, kGuardedBytes);
      all = std::all_of(there.begin(), there.end(),
                        [&](std::byte each) { return each == std::byte{fill}; });
    });
    return all;
  }
  template <typename Condition>
  static void wait_until(const Condition& condition) {
    while (!condition()) std::this_thread::yield();
  }

  static constexpr size_t kBufferBytes = 3 * kGuardedBytes;
  std::unique_ptr<base::Host> host_ = make_host();
  Thread client_thread_{*host_, "client"};
  Thread server_thread_{*host_, "server"};
  SlowDisk disk_;
  Client client_;
  std::unique_ptr<vhca::Device> server_device_;
  std::unique_ptr<testing::LateWriterDevice> client_device_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<base::Segment> memory_;
  std::unique_ptr<vhca::Mr> mr_;
  std::unique_ptr<ClientSession> session_;
};

TEST_P(LateWriterOnAWire, ReachesTheDiskOnlyWhereChunksAreOpen) {
  const ChunkGuard guard = std::get<1>(GetParam());
  for (size_t i = 0; i < 3; ++i) std::memset(buffer(i), static_cast<int>(0xa0 + i), kGuardedBytes);
  Write first, second;
  submit(first, 0);
  wait_until([&] { return disk_.arrived == 1; });
  EXPECT_EQ(disk_.guards, std::vector<ChunkGuard>{guard});
  client_thread_.on([&] { client_device_->late(buffer(2), kGuardedBytes); });
  if (guard == ChunkGuard::kWindows) wait_until([&] { return client_.lost == 1; });
  // By the same queue pair or the next one: what was written late is over when this is there.
  submit(second, 1);
  if (guard != ChunkGuard::kWindows) wait_until([&] { return disk_.arrived == 2; });
  server_thread_.on([&] { disk_.store_all(); });
  EXPECT_EQ(first.ended.get_future().get(), Errc::kOk);
  EXPECT_EQ(second.ended.get_future().get(), Errc::kOk);
  EXPECT_TRUE(stored(0, guard == ChunkGuard::kNone ? 0xa2 : 0xa0));
  EXPECT_TRUE(stored(1, 0xa1));
  EXPECT_EQ(client_.lost, guard == ChunkGuard::kWindows ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Wires, LateWriterOnAWire,
                         ::testing::Combine(::testing::Values("InHost", "Tcp"),
                                            ::testing::Values(ChunkGuard::kNone,
                                                              ChunkGuard::kWindows,
                                                              ChunkGuard::kCopy)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) +
                                  std::string(to_string(std::get<1>(param.param)));
                         });

}  // namespace
}  // namespace braid::trs
