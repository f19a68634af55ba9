// Sessions between threads of this process, over shared memory: what simulation, which has one
// thread, cannot show. Run it under the thread sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "base/linux_host.h"
#include "trs/client.h"
#include "trs/server.h"
#include "trs/test_keys.h"
#include "vhca/soft_device.h"

namespace braid::trs {
namespace {

using base::Errc;

constexpr size_t kBlockBytes = 8192;
constexpr size_t kLanesPerReactor = 4;
constexpr size_t kBlocks = 64;
// Nobody is cut off here for not being scheduled: that is liveness_test.cc's subject.
constexpr uint64_t kPatienceNs = 10 * base::kSecond;

/// Reactors with a thread each.
class Threads {
 public:
  Threads(base::Host& host, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      auto reactor = base::Reactor::create(host, {.name = "t" + std::to_string(i)});
      BRAID_ASSERT(reactor.ok());
      reactors_.push_back(std::move(*reactor));
      auto body = [target = reactors_.back().get()] { target->run(); };
      auto thread = host.start_thread("t" + std::to_string(i), body);
      BRAID_ASSERT(thread.ok());
      threads_.push_back(std::move(*thread));
    }
  }
  ~Threads() {
    for (auto& reactor : reactors_) reactor->stop();
    threads_.clear();
  }
  base::Reactor& operator[](size_t index) { return *reactors_[index]; }
  size_t size() const { return reactors_.size(); }
  std::vector<base::Reactor*> list() const {
    std::vector<base::Reactor*> all;
    for (const auto& reactor : reactors_) all.push_back(reactor.get());
    return all;
  }

 private:
  std::vector<std::unique_ptr<base::Reactor>> reactors_;
  std::vector<std::unique_ptr<base::Thread>> threads_;
};

/// Runs a function on a reactor and waits for it.
void on(base::Reactor& reactor, const std::function<void()>& function) {
  std::promise<void> done;
  reactor.post([&] {
    function();
    done.set_value();
  });
  done.get_future().wait();
}

template <typename T>
base::Task<void> keep(base::Task<T> task, std::promise<T>& result) {
  result.set_value(co_await std::move(task));
}
base::Task<void> keep_nothing(base::Task<void> task, std::promise<void>& result) {
  co_await std::move(task);
  result.set_value();
}
/// Makes a task on a reactor, and waits for its end.
template <typename T>
T await_on(base::Reactor& reactor, const std::function<base::Task<T>()>& make) {
  std::promise<T> result;
  reactor.post([&] { reactor.spawn(keep(make(), result)); });
  return result.get_future().get();
}
void await_end_on(base::Reactor& reactor, const std::function<base::Task<void>()>& make) {
  std::promise<void> result;
  reactor.post([&] { reactor.spawn(keep_nothing(make(), result)); });
  result.get_future().wait();
}

/// Blocks in memory; block n is used by one lane at a time.
class StoreUser final : public ServerUser {
 public:
  explicit StoreUser(size_t blocks) : bytes(blocks * kBlockBytes) {}
  void session_opened(ServerSession&) override { ++opened; }
  void session_closed(ServerSession&) override { ++closed; }
  void request(ServerRequest& request) override {
    uint64_t block = 0;
    std::memcpy(&block, request.user_header.data(), sizeof(block));
    std::byte* const at = bytes.data() + block * kBlockBytes;
    if (request.direction == Direction::kWrite) {
      std::memcpy(at, request.data.data(), request.data.size());
    } else {
      std::memcpy(request.data.data(), at, request.data.size());
    }
    request.answer(Errc::kOk);
  }
  std::vector<std::byte> bytes;
  std::atomic<int> opened{0}, closed{0};
};

class QuietUser final : public SessionUser {
 public:
  base::Task<base::Status> reconnected() override {
    ++reconnects;
    co_return base::Status();
  }
  void disconnected(const base::Error&) override {}
  std::atomic<int> reconnects{0};
};

/// Writes its block and reads it back, `rounds` times; waits for permits with others.
struct Lane : PermitWaiter {
  ClientRequest request;
  ClientQueue* queue = nullptr;
  uint64_t block = 0;
  uint64_t rounds = 0;
  uint8_t stamp = 0;
  uint64_t wrong = 0;
  Errc last = Errc::kOk;
  std::atomic<unsigned>* running = nullptr;

  void start() {
    request.user_header = std::as_bytes(std::span(&block, 1));
    request.context = this;
    PermitWaiter::context = this;
    permit_free = [](PermitWaiter& self) { static_cast<Lane*>(self.context)->submit(); };
    request.direction = Direction::kWrite;
    request.done = [](ClientRequest& self, Errc status) {
      static_cast<Lane*>(self.context)->step(status);
    };
    write();
  }
  void write() {
    std::memset(request.data.address, ++stamp, kBlockBytes);
    submit();
  }
  void submit() {
    request.permit = queue->acquire();
    if (request.permit) {
      queue->submit(request);
    } else {
      queue->wait_for_permit(*this);
    }
  }
  void step(Errc status) {
    last = status;
    if (status == Errc::kCanceled) {
      running->fetch_sub(1);
      return;
    }
    if (status != Errc::kOk) ++wrong;
    if (request.direction == Direction::kWrite) {
      request.direction = Direction::kRead;
      std::memset(request.data.address, 0, kBlockBytes);
      submit();
      return;
    }
    if (std::to_integer<uint8_t>(request.data.address[kBlockBytes - 1]) != stamp) ++wrong;
    if (--rounds == 0) {
      running->fetch_sub(1);
      return;
    }
    request.direction = Direction::kWrite;
    write();
  }
};

/// Reactors of the client, reactors of the server.
class SessionThreads : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {
 protected:
  SessionThreads()
      : host_(make_host()),
        client_threads_(*host_, std::get<0>(GetParam())),
        server_threads_(*host_, std::get<1>(GetParam())),
        user_(kBlocks) {
    on(server_threads_[0], [&] { server_device_ = make_device(server_threads_[0]); });
    on(client_threads_[0], [&] { client_device_ = make_device(client_threads_[0]); });
    start_server(0);
  }
  ~SessionThreads() override {
    on(client_threads_[0], [&] {
      session_.reset();
      mr_.reset();
      domain_.reset();
      client_device_.reset();
    });
    stop_server();
    on(server_threads_[0], [&] { server_device_.reset(); });
  }

  static std::unique_ptr<base::Host> make_host() {
    base::LinuxHostOptions options;
    options.log_level = base::LogLevel::kError;
    auto host = base::create_linux_host(options);
    BRAID_ASSERT(host.ok());
    return std::move(*host);
  }
  std::unique_ptr<vhca::Device> make_device(base::Reactor& reactor) {
    auto device = vhca::create_soft_device(*host_, reactor);
    BRAID_ASSERT(device.ok());
    return std::move(*device);
  }
  /// Half of the cases.
  static bool with_keys() { return std::get<0>(GetParam()) > 1; }
  void start_server(uint16_t port) {
    on(server_threads_[0], [&] {
      ServerOptions options;
      options.listen = {"127.0.0.1", port};
      options.reactors = server_threads_.list();
      options.queue_depth = 64;
      options.max_io_bytes = 64 << 10;
      options.heartbeat.interval_ns = kPatienceNs;
      options.endpoints.push_back({server_device_.get(), {"127.0.0.1", port_b_}});
      if (with_keys()) options.keys = testing::test_ring({testing::test_key("threads")});
      auto server = Server::create(*server_device_, options, user_);
      ASSERT_TRUE(server.ok()) << server.error().message();
      server_ = std::move(*server);
      port_ = server_->address().port;
      port_b_ = server_->addresses()[1].port;
    });
  }
  void stop_server() {
    await_end_on(server_threads_[0], [&] { return server_->stop(); });
    on(server_threads_[0], [&] { server_.reset(); });
  }
  void open(bool two_paths = false) {
    on(client_threads_[0], [&] {
      domain_ = std::move(*Domain::create(*client_device_));
      const size_t size_bytes = user_.bytes.size();
      memory_ = std::move(*host_->create_segment(size_bytes, "test"));
      mr_ = std::move(*domain_->register_memory(memory_->data(), size_bytes,
                                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
    });
    using Opened = base::Result<std::unique_ptr<ClientSession>>;
    Opened opened = await_on<Opened>(client_threads_[0], [&] {
      ClientOptions options;
      options.session_name = "threads";
      options.server = {"127.0.0.1", port_};
      if (two_paths) options.paths.push_back({{"127.0.0.1", port_b_}});
      options.reactors = client_threads_.list();
      options.heartbeat.interval_ns = kPatienceNs;
      if (with_keys()) options.key = testing::test_key("threads");
      return ClientSession::open(*domain_, options, session_user_);
    });
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    session_ = std::move(*opened);
  }
  bool connected(size_t path) {
    bool up = false;
    on(client_threads_[0], [&] { up = session_->paths()[path].connected; });
    return up;
  }
  void close() {
    await_end_on(client_threads_[0], [&] { return session_->close(); });
  }
  void start_lanes(uint64_t rounds) {
    start_lanes(rounds, std::vector<size_t>(client_threads_.size(), kLanesPerReactor));
  }
  /// So many on each reactor.
  void start_lanes(uint64_t rounds, const std::vector<size_t>& counts) {
    std::vector<size_t> reactor_of;
    for (size_t reactor = 0; reactor < counts.size(); ++reactor) {
      reactor_of.insert(reactor_of.end(), counts[reactor], reactor);
    }
    ASSERT_LE(reactor_of.size(), kBlocks);
    running_ = static_cast<unsigned>(reactor_of.size());
    for (size_t i = 0; i < reactor_of.size(); ++i) {
      auto lane = std::make_unique<Lane>();
      lane->queue = &session_->queue(reactor_of[i]);
      lane->block = i;
      lane->rounds = rounds;
      lane->running = &running_;
      lane->request.data = {mr_.get(), memory_->data() + i * kBlockBytes, kBlockBytes};
      lanes_.push_back(std::move(lane));
    }
    for (size_t i = 0; i < lanes_.size(); ++i) {
      client_threads_[reactor_of[i]].post([lane = lanes_[i].get()] { lane->start(); });
    }
  }
  void wait_for_lanes() {
    while (running_.load() > 0) std::this_thread::yield();
    for (auto& lane : lanes_) EXPECT_EQ(lane->wrong, 0u);
  }

  std::unique_ptr<base::Host> host_;
  Threads client_threads_;
  Threads server_threads_;
  StoreUser user_;
  QuietUser session_user_;
  std::unique_ptr<vhca::Device> server_device_;
  std::unique_ptr<vhca::Device> client_device_;
  std::unique_ptr<Server> server_;
  uint16_t port_ = 0, port_b_ = 0;
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<base::Segment> memory_;
  std::unique_ptr<vhca::Mr> mr_;
  std::unique_ptr<ClientSession> session_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<unsigned> running_{0};
};

TEST_P(SessionThreads, EveryReactorDoesItsIo) {
  open();
  start_lanes(1000);
  wait_for_lanes();
  close();
  while (user_.closed < 1) std::this_thread::yield();
  EXPECT_EQ(user_.opened, 1);
}

TEST_P(SessionThreads, IoGoesOnOverRestartsOfTheServer) {
  open();
  start_lanes(2000);
  for (int i = 0; i < 3; ++i) {
    const int before = session_user_.reconnects;
    stop_server();
    start_server(port_);
    while (session_user_.reconnects == before) std::this_thread::yield();
  }
  wait_for_lanes();
  close();
}

TEST_P(SessionThreads, CloseUnderLoadEndsEveryRequest) {
  open();
  start_lanes(UINT64_MAX);
  close();
  while (running_.load() > 0) std::this_thread::yield();
  for (auto& lane : lanes_) EXPECT_EQ(lane->last, Errc::kCanceled);
}

TEST_P(SessionThreads, PathsComeAndGoUnderLoad) {
  open(true);
  start_lanes(2000);
  for (int i = 0; i < 6; ++i) {
    const size_t path = i % 2;
    while (!connected(0) || !connected(1)) std::this_thread::yield();
    on(client_threads_[0], [&] { EXPECT_TRUE(session_->disconnect_path(path).ok()); });
    while (connected(path)) std::this_thread::yield();
    on(client_threads_[0], [&] { EXPECT_TRUE(session_->reconnect_path(path).ok()); });
  }
  wait_for_lanes();
  EXPECT_EQ(session_user_.reconnects, 0) << "a path was up all the time";
  close();
}

TEST_P(SessionThreads, PermitsGoWhereTheyAreWanted) {
  open();
  std::vector<size_t> counts(client_threads_.size(), 1);
  counts.back() = 50;
  start_lanes(500, counts);
  wait_for_lanes();
  std::atomic<uint64_t> lent{0}, borrowed{0};
  for (size_t i = 0; i < client_threads_.size(); ++i) {
    on(client_threads_[i], [&, i] {
      lent += session_->queue(i).statistics().permits_lent;
      borrowed += session_->queue(i).statistics().permits_borrowed;
    });
  }
  EXPECT_EQ(lent, borrowed);
  EXPECT_EQ(lent > 0, client_threads_.size() > 1);
  close();
}

INSTANTIATE_TEST_SUITE_P(Reactors, SessionThreads,
                         ::testing::Values(std::tuple(1, 1), std::tuple(2, 2), std::tuple(3, 2),
                                           std::tuple(1, 2)),
                         [](const auto& param) {
                           return "Client" + std::to_string(std::get<0>(param.param)) + "Server" +
                                  std::to_string(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace braid::trs
