// For tests on the real host: an export server with threads of its own.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bnbd/server.h"
#include "vhca/soft_device.h"

namespace braid::bnbd::test {

enum class Wire { kInHost, kTcp };

/// Of 127.0.0.1. Control reactor.
inline std::unique_ptr<vhca::Device> make_device(base::Host& host, base::Reactor& control,
                                                 Wire wire) {
  auto device = wire == Wire::kTcp ? vhca::create_tcp_device(host, control, {.ip = "127.0.0.1"})
                                   : vhca::create_soft_device(host, control);
  return std::move(device).value();
}

/// Reactors with a thread each; exports a folder, and memory as "ram" and "beside".
class ServerThread {
 public:
  ServerThread(base::Host& host, std::string root, uint16_t port, size_t reactor_count,
               Wire wire = Wire::kInHost)
      : host_(host), root_(std::move(root)), port_(port), wire_(wire) {
    for (size_t i = 0; i < reactor_count; ++i) {
      reactors_.push_back(std::move(base::Reactor::create(host_, {})).value());
    }
    std::promise<vhca::Address> started;
    auto address = started.get_future();
    home().post([&] { started.set_value(create()); });
    for (auto& reactor : reactors_) {
      threads_.push_back(
          std::move(host_.start_thread("server", [&reactor] { reactor->run(); })).value());
    }
    address_ = address.get();
  }
  ~ServerThread() {
    std::promise<void> stopped;
    home().post([&] { home().spawn(stop(stopped)); });
    stopped.get_future().wait();
    for (auto& reactor : reactors_) reactor->stop();
    threads_.clear();
  }
  const vhca::Address& address() const { return address_; }
  /// Runs a function on the home reactor.
  template <typename T>
  T ask(std::function<T()> function) {
    std::promise<T> answer;
    home().post([&] { answer.set_value(function()); });
    return answer.get_future().get();
  }
  ExportServer& server() { return *server_; }

 private:
  base::Reactor& home() { return *reactors_.front(); }
  vhca::Address create() {
    device_ = make_device(host_, home(), wire_);
    ExportServerOptions options;
    options.root = root_;
    options.named = {{NamedExport::Kind::kMemory, "ram", 8 << 20},
                     {NamedExport::Kind::kMemory, "beside", 8 << 20}};
    options.transport.listen = {"127.0.0.1", port_};
    for (auto& reactor : reactors_) options.transport.reactors.push_back(reactor.get());
    options.transport.queue_depth = 32;
    options.transport.max_io_bytes = 256 << 10;
    server_ = std::move(ExportServer::create(*device_, std::move(options))).value();
    return server_->address();
  }
  base::Task<void> stop(std::promise<void>& stopped) {
    const base::Status status = co_await server_->stop();
    EXPECT_TRUE(status.ok()) << status.error().message();
    server_.reset();
    device_.reset();
    stopped.set_value();
  }

  base::Host& host_;
  const std::string root_;
  const uint16_t port_;
  const Wire wire_;
  std::vector<std::unique_ptr<base::Reactor>> reactors_;
  std::vector<std::unique_ptr<base::Thread>> threads_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<ExportServer> server_;
  vhca::Address address_;
};

}  // namespace braid::bnbd::test
