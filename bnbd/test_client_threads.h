// For tests of a client whose reactors have threads of their own, against a server with two: what
// simulation, which has one thread, cannot show.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "base/linux_test_folder.h"
#include "bnbd/remote.h"
#include "bnbd/test_server_thread.h"
#include "vhca/soft_device.h"

namespace braid::bnbd::test {

/// A client with reactors of its own threads, and a server with two.
class ClientThreadsRig : public testing::Test {
 protected:
  explicit ClientThreadsRig(size_t reactors, Wire wire = Wire::kInHost) : wire_(wire) {
    folder_.make_file("disk.img", 8 << 20);
    base::LinuxHostOptions quiet;
    quiet.log_sink = base::make_null_sink();
    host_ = std::move(base::create_linux_host(quiet)).value();
    for (size_t i = 0; i < reactors; ++i) {
      reactors_.push_back(std::move(base::Reactor::create(*host_, {})).value());
      auto run = [reactor = reactors_.back().get()] { reactor->run(); };
      threads_.push_back(std::move(host_->start_thread("client", run)).value());
    }
    start_server(0);
    at_home([&] { device_ = make_device(*host_, home(), wire_); });
  }
  ~ClientThreadsRig() override {
    if (disk_) await([&] { return close_disk(); });
    if (session_) await([&] { return close_session(); });
    at_home([&] {
      disk_.reset();
      session_.reset();
    });
    server_.reset();
    at_home([&] { device_.reset(); });
    for (auto& reactor : reactors_) reactor->stop();
    threads_.clear();
  }
  void start_server(uint16_t port) {
    server_ = std::make_unique<ServerThread>(*host_, folder_.path(), port, 2, wire_);
  }
  base::Reactor& home() { return *reactors_.front(); }
  void at_home(const std::function<void()>& function) {
    std::promise<void> done;
    home().post([&] {
      function();
      done.set_value();
    });
    done.get_future().wait();
  }
  /// Runs a task at home, and waits for its end.
  void await(const std::function<base::Task<void>()>& make) {
    std::promise<void> ended;
    home().post([&] { home().spawn(tell_end(make(), ended)); });
    ended.get_future().wait();
  }
  static base::Task<void> tell_end(base::Task<void> task, std::promise<void>& ended) {
    co_await std::move(task);
    ended.set_value();
  }
  base::Task<void> close_disk() { co_await disk_->close(); }
  base::Task<void> close_session() { co_await session_->close(); }
  base::Task<void> open_both(std::string session_name, std::string name,
                             std::unique_ptr<RemoteSession>& session,
                             std::unique_ptr<RemoteDevice>& disk) {
    RemoteSessionOptions options;
    options.transport.session_name = std::move(session_name);
    options.transport.server = server_->address();
    for (auto& reactor : reactors_) options.transport.reactors.push_back(reactor.get());
    auto opened_session = co_await RemoteSession::open(*device_, std::move(options));
    EXPECT_TRUE(opened_session.ok()) << opened_session.error().message();
    session = std::move(opened_session).value();
    RemoteDeviceOptions device;
    device.name = std::move(name);
    auto opened = co_await session->open_device(std::move(device));
    EXPECT_TRUE(opened.ok()) << opened.error().message();
    disk = std::move(opened).value();
  }
  void open(const std::string& name) {
    await([&] { return open_both("test", name, session_, disk_); });
    at_home([&] { queues_ = disk_->queues(); });
  }
  RemoteDeviceStatus status() {
    RemoteDeviceStatus now;
    at_home([&] { now = disk_->status(); });
    return now;
  }

  const Wire wire_;
  const base::ScratchFolder folder_{base::folder_on_disk()};
  std::unique_ptr<base::Host> host_;
  std::vector<std::unique_ptr<base::Reactor>> reactors_;
  std::vector<std::unique_ptr<base::Thread>> threads_;
  std::unique_ptr<ServerThread> server_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<RemoteSession> session_;
  std::unique_ptr<RemoteDevice> disk_;
  std::vector<BlockQueue> queues_;
};

}  // namespace braid::bnbd::test
