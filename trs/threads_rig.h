// For tests of sessions between threads: a client and a server in this process, each with reactors
// that have a thread of their own, over shared memory. The test's own thread looks on: what belongs
// to a reactor it asks for there, with on().
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>  // lint: allow(os) real threads are what it is for
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "trs/client.h"
#include "trs/server.h"
#include "trs/test_keys.h"
#include "vhca/soft_device.h"

namespace braid::trs::testing {

// Nobody is cut off here for not being scheduled: that is liveness_test.cc's subject.
inline constexpr uint64_t kThreadsPatienceNs = 10 * base::kSecond;

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
inline void on(base::Reactor& reactor, const std::function<void()>& function) {
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
inline base::Task<void> keep_nothing(base::Task<void> task, std::promise<void>& result) {
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
inline void await_end_on(base::Reactor& reactor, const std::function<base::Task<void>()>& make) {
  std::promise<void> result;
  reactor.post([&] { reactor.spawn(keep_nothing(make(), result)); });
  result.get_future().wait();
}

class QuietUser final : public SessionUser {
 public:
  base::Task<base::Status> reconnected() override {
    ++reconnects;
    co_return base::Status();
  }
  void disconnected(const base::Error&) override {}
  std::atomic<int> reconnects{0};
};

struct ThreadsSettings {
  size_t client_reactors = 1, server_reactors = 1;
  bool with_keys = false;
  size_t memory_bytes = 0;  // of the client, for I/O
  ChunkGuard guard = ChunkGuard::kNone;
  bool by_tcp = false;
  HeartbeatOptions heartbeat = {.interval_ns = kThreadsPatienceNs};
};

/// The server listens at two addresses, so that a session may have two paths.
class ThreadsRig {
 protected:
  /// Serves at once; `user` is told nothing before its own constructor has ended.
  ThreadsRig(ServerUser& user, const ThreadsSettings& settings)
      : settings_(settings),
        host_(make_host()),
        client_threads_(*host_, settings.client_reactors),
        server_threads_(*host_, settings.server_reactors),
        server_user_(user) {
    on(server_threads_[0], [&] { server_device_ = make_device(server_threads_[0]); });
    on(client_threads_[0], [&] { client_device_ = make_device(client_threads_[0]); });
    start_server(0);
  }
  virtual ~ThreadsRig() = default;
  /// For the destructor of who has the server's user.
  void take_down() {
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
    auto device = settings_.by_tcp
                      ? vhca::create_host_device(*host_, reactor,
                                                 {.listen_tcp = true, .tcp_within_host = true})
                      : vhca::create_soft_device(*host_, reactor);
    BRAID_ASSERT(device.ok());
    return std::move(*device);
  }
  void start_server(uint16_t port) {
    on(server_threads_[0], [&] {
      ServerOptions options;
      options.listen = {"127.0.0.1", port};
      options.reactors = server_threads_.list();
      options.queue_depth = 64;
      options.max_io_bytes = 64 << 10;
      options.heartbeat = settings_.heartbeat;
      options.guard = settings_.guard;
      options.endpoints.push_back({server_device_.get(), {"127.0.0.1", port_b_}});
      if (settings_.with_keys) options.keys = test_ring({test_key("threads")});
      auto server = Server::create(*server_device_, options, server_user_);
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
      const size_t size_bytes = settings_.memory_bytes;
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
      options.heartbeat = settings_.heartbeat;
      if (settings_.with_keys) options.key = test_key("threads");
      return ClientSession::open(*domain_, options, session_user_);
    });
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    session_ = std::move(*opened);
  }
  /// Ends the process, with its word, when that does not come.
  void wait_until(const char* what, const std::function<bool()>& came) {
    const uint64_t deadline_ns = host_->now_ns() + 6 * kThreadsPatienceNs;
    while (!came()) {
      if (host_->now_ns() > deadline_ns) base::panic(__FILE__, __LINE__, what);
      std::this_thread::yield();
    }
  }
  bool connected(size_t path) {
    bool up = false;
    on(client_threads_[0], [&] { up = session_->paths()[path].connected; });
    return up;
  }
  void close() {
    await_end_on(client_threads_[0], [&] { return session_->close(); });
  }

  const ThreadsSettings settings_;
  std::unique_ptr<base::Host> host_;
  Threads client_threads_;
  Threads server_threads_;
  ServerUser& server_user_;
  QuietUser session_user_;
  std::unique_ptr<vhca::Device> server_device_;
  std::unique_ptr<vhca::Device> client_device_;
  std::unique_ptr<Server> server_;
  uint16_t port_ = 0, port_b_ = 0;
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<base::Segment> memory_;
  std::unique_ptr<vhca::Mr> mr_;
  std::unique_ptr<ClientSession> session_;
};

}  // namespace braid::trs::testing
