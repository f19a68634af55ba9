// Groups between threads, over shared memory: legs come and go, and the group ends, while every
// reactor submits. Run it under the thread sanitizer.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "base/linux_host.h"
#include "trs/group.h"
#include "trs/server.h"
#include "trs/threads_rig.h"
#include "vhca/soft_device.h"

namespace braid::trs {
namespace {

using base::Errc;
using testing::await_end_on;
using testing::keep_nothing;
using testing::on;

constexpr size_t kGroupReactors = 2;
constexpr size_t kLegs = 2;
constexpr size_t kLanes = 24;  // of a reactor: more than it has permits
constexpr uint32_t kBytes = 512;
constexpr uint64_t kPatienceNs = 10 * base::kSecond;  // nobody is cut off for not being scheduled

/// So many that what follows from what has happened has happened.
base::Task<void> turns(base::Reactor& reactor) {
  for (int i = 0; i < 5; ++i) co_await reactor.sleep_ns(1);
}

/// Says yes to everything.
class Agreeable final : public ServerUser {
 public:
  void session_opened(ServerSession&) override {}
  void session_closed(ServerSession&) override {}
  void request(ServerRequest& request) override { request.answer(Errc::kOk); }
};
class Quiet final : public SessionUser {
 public:
  base::Task<base::Status> reconnected() override { co_return base::Status(); }
  void disconnected(const base::Error&) override {}
};

/// Submits the same request again whenever it ends, until it is told to stop.
struct Lane {
  GroupRequest request;
  GroupQueue* queue = nullptr;
  const std::atomic<bool>* stop = nullptr;
  std::atomic<uint64_t>* ended = nullptr;  // of all
  std::atomic<size_t>* running = nullptr;
  uint64_t wrong = 0;

  void start() {
    request.context = this;
    request.done = [](GroupRequest& of) { static_cast<Lane*>(of.context)->over(); };
    queue->submit(request);
  }
  void over() {
    for (size_t leg = 0; leg < kLegs; ++leg) {
      const Errc status = request.results[leg].status;
      const bool sent = (request.sent_to >> leg & 1) != 0;
      if (sent && status != Errc::kOk && status != Errc::kCanceled) ++wrong;
    }
    ended->fetch_add(1);
    if (stop->load()) {
      running->fetch_sub(1);
    } else {
      queue->submit(request);
    }
  }
};

class GroupThreads : public ::testing::Test {
 protected:
  GroupThreads() {
    base::LinuxHostOptions options;
    options.log_level = base::LogLevel::kError;
    host_ = std::move(*base::create_linux_host(options));
    for (size_t i = 0; i < kGroupReactors; ++i) {
      reactors_.push_back(std::move(*base::Reactor::create(*host_, {})));
      threads_.push_back(std::move(
          *host_->start_thread("group", [reactor = reactors_.back().get()] { reactor->run(); })));
    }
    on(home(), [this] {
      device_ = std::move(*vhca::create_soft_device(*host_, home()));
      for (auto& server : servers_) {
        ServerOptions of_server;
        of_server.listen = {"127.0.0.1", 0};
        of_server.reactors = list();
        of_server.queue_depth = 24;
        of_server.max_io_bytes = 4096;
        of_server.heartbeat.interval_ns = kPatienceNs;
        server = std::move(*Server::create(*device_, of_server, agreeable_));
      }
      domain_ = std::move(*Domain::create(*device_));
      memory_ = std::move(*host_->create_segment(kBytes, "test"));
      mr_ = std::move(*domain_->register_memory(memory_->data(), kBytes, IBV_ACCESS_LOCAL_WRITE));
      group_ = std::move(*Group::create(list()));
    });
    for (size_t i = 0; i < kLegs; ++i) await_end_on(home(), [this, i] { return open(i); });
    make_lanes();
  }
  ~GroupThreads() override {
    for (auto& session : sessions_) await_end_on(home(), [&] { return session->close(); });
    for (auto& server : servers_) await_end_on(home(), [&] { return server->stop(); });
    on(home(), [this] {
      for (auto& session : sessions_) session.reset();
      for (auto& server : servers_) server.reset();
      mr_.reset();
      domain_.reset();
      device_.reset();
    });
    for (auto& reactor : reactors_) reactor->stop();
    threads_.clear();
  }

  base::Reactor& home() { return *reactors_[0]; }
  std::vector<base::Reactor*> list() const {
    std::vector<base::Reactor*> all;
    for (const auto& reactor : reactors_) all.push_back(reactor.get());
    return all;
  }
  base::Task<void> open(size_t index) {
    ClientOptions options;
    options.session_name = "threads" + std::to_string(index);
    options.server = {"127.0.0.1", servers_[index]->address().port};
    options.reactors = list();
    options.heartbeat.interval_ns = kPatienceNs;
    Domain& domain = *domain_;
    SessionUser& user = quiet_;
    auto opened = co_await ClientSession::open(domain, options, user);
    BRAID_ASSERT(opened.ok());
    sessions_[index] = std::move(*opened);
  }
  base::Task<void> add(size_t session) {
    auto added = co_await group_->add_leg(*sessions_[session], LegPolicy::kWait);
    BRAID_ASSERT(added.ok() && *added == session);
  }
  base::Task<void> remove(size_t slot) {
    const base::Status removed = co_await group_->remove_leg(slot);
    BRAID_ASSERT(removed.ok());
  }
  void make_lanes() {
    for (size_t i = 0; i < kGroupReactors * kLanes; ++i) {
      auto lane = std::make_unique<Lane>();
      lane->request.user_header = std::as_bytes(std::span(&header_, 1));
      lane->request.data = {mr_.get(), memory_->data(), kBytes};
      lane->queue = &group_->queue(i % kGroupReactors);
      lane->stop = &stop_;
      lane->ended = &ended_;
      lane->running = &running_;
      lanes_.push_back(std::move(lane));
    }
  }
  void start_lanes() {
    stop_ = false;
    running_ = lanes_.size();
    for (size_t i = 0; i < lanes_.size(); ++i) {
      reactors_[i % kGroupReactors]->post([lane = lanes_[i].get()] { lane->start(); });
    }
  }
  void wait_for(uint64_t count) {
    const uint64_t from = ended_;
    while (ended_ < from + count) std::this_thread::yield();
  }

  std::unique_ptr<base::Host> host_;
  std::vector<std::unique_ptr<base::Reactor>> reactors_;
  std::vector<std::unique_ptr<base::Thread>> threads_;
  Agreeable agreeable_;
  Quiet quiet_;
  std::unique_ptr<vhca::Device> device_;
  std::array<std::unique_ptr<Server>, kLegs> servers_;
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<base::Segment> memory_;
  std::unique_ptr<vhca::Mr> mr_;
  std::array<std::unique_ptr<ClientSession>, kLegs> sessions_;
  std::unique_ptr<Group> group_;
  uint64_t header_ = 0;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> ended_{0};
  std::atomic<size_t> running_{0};
};

TEST_F(GroupThreads, LegsComeAndGoWhileAllReactorsSubmit) {
  for (size_t i = 0; i < kLegs; ++i) await_end_on(home(), [&] { return add(i); });
  start_lanes();
  for (size_t round = 0; round < 30; ++round) {
    wait_for(50);
    await_end_on(home(), [&] { return remove(round % kLegs); });
    wait_for(50);
    await_end_on(home(), [&] { return add(round % kLegs); });
  }
  stop_ = true;
  while (running_ > 0) std::this_thread::yield();
  await_end_on(home(), [&] { return group_->close(); });
  on(home(), [this] { group_.reset(); });
  for (const auto& lane : lanes_) EXPECT_EQ(lane->wrong, 0u);
}

// What was submitted has ended when the group has: also what the end of the last leg set free.
TEST_F(GroupThreads, TheEndOfABusyGroupIsTheEndOfItsRequests) {
  for (size_t round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    for (size_t i = 0; i < kLegs; ++i) await_end_on(home(), [&] { return add(i); });
    start_lanes();
    wait_for(20);
    stop_ = true;
    for (size_t i = 0; i < kGroupReactors; ++i)
      on(*reactors_[i], [] {});  // submits that saw it not
    await_end_on(home(), [&] { return group_->close(); });
    ASSERT_EQ(running_, 0u);
    on(home(), [this] {
      group_.reset();
      group_ = std::move(*Group::create(list()));
    });
    for (size_t i = 0; i < lanes_.size(); ++i)
      lanes_[i]->queue = &group_->queue(i % kGroupReactors);
  }
  await_end_on(home(), [&] { return group_->close(); });
  on(home(), [this] { group_.reset(); });
  for (const auto& lane : lanes_) EXPECT_EQ(lane->wrong, 0u);
}

// The last leg's end and the queue's own are taken off by one turn of the other reactor, so that no
// poll is between them.
TEST_F(GroupThreads, WhatTheEndOfTheLastLegSetFreeIsTold) {
  await_end_on(home(), [&] { return add(0); });
  std::array<std::vector<Permit>, kGroupReactors> taken;  // all, so that the request waits for one
  for (size_t i = 0; i < kGroupReactors; ++i) {
    on(*reactors_[i], [&] {
      while (Permit permit = sessions_[0]->queue(i).acquire())
        taken[i].push_back(std::move(permit));
    });
  }
  base::Reactor& other = *reactors_[1];
  stop_ = true;
  running_ = 1;
  on(other, [this] { lanes_[1]->start(); });

  std::promise<void> leg_goes, between, queue_goes, closed;
  other.post([&] { leg_goes.get_future().wait(); });
  home().post([&] { home().spawn(keep_nothing(group_->close(), closed)); });
  await_end_on(home(),
               [&] { return turns(home()); });  // has told the other reactor of the leg's end
  other.post([&] {
    between.set_value();
    queue_goes.get_future().wait();
  });
  leg_goes.set_value();
  between.get_future().wait();
  await_end_on(home(), [&] { return turns(home()); });  // ... and of its own
  queue_goes.set_value();
  closed.get_future().wait();
  EXPECT_EQ(running_, 0u);
  EXPECT_EQ(lanes_[1]->request.results[0].status, Errc::kCanceled);
  on(home(), [this] { group_.reset(); });
  for (size_t i = 0; i < kGroupReactors; ++i) on(*reactors_[i], [&] { taken[i].clear(); });
}

}  // namespace
}  // namespace braid::trs
