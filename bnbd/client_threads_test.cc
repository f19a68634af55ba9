// I/O from several threads at once. Run it under the thread sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "bnbd/test_client_threads.h"

namespace braid::bnbd {
namespace {

using base::Errc;

constexpr uint64_t kThreadBytes = 4096;
constexpr size_t kWorkersEach = 8;

/// Writes its blocks with a new stamp, flushes now and then, reads them back; on one reactor.
class Worker {
 public:
  Worker(const BlockQueue& queue, const Region& region, size_t index, uint64_t rounds)
      : queue_(queue), offset_bytes_(index * kThreadBytes), rounds_(rounds) {
    request_.buffer = {&region, region.data() + index * kThreadBytes};
    request_.context = this;
    request_.done = [](BlockRequest& request, Errc status) {
      static_cast<Worker*>(request.context)->step(status);
    };
  }
  void start() {
    queue_.reactor->post([this] { write(); });
  }
  void stop() { stop_ = true; }
  void wait() { ended_.get_future().wait(); }
  uint64_t wrong = 0;
  Errc last = Errc::kOk;
  std::atomic<uint64_t> written{0};

 private:
  void submit(BlockOp op) {
    request_.op = op;
    request_.offset_bytes = op == BlockOp::kFlush ? 0 : offset_bytes_;
    request_.length_bytes = op == BlockOp::kFlush ? 0 : kThreadBytes;
    queue_.device->submit(request_);
  }
  void write() {
    std::memset(request_.buffer.address, ++stamp_, kThreadBytes);
    submit(BlockOp::kWrite);
  }
  void step(Errc status) {
    last = status;
    if (status != Errc::kOk) return ended_.set_value();
    switch (request_.op) {
      case BlockOp::kWrite:
        ++written;
        if (stamp_ % 8 == 0) return submit(BlockOp::kFlush);
        [[fallthrough]];
      case BlockOp::kFlush:
        std::memset(request_.buffer.address, 0, kThreadBytes);
        return submit(BlockOp::kRead);
      default:
        break;
    }
    const std::byte* const data = request_.buffer.address;
    if (data[0] != std::byte{stamp_} || data[kThreadBytes - 1] != std::byte{stamp_}) ++wrong;
    if (--rounds_ == 0 || stop_) return ended_.set_value();
    write();
  }

  const BlockQueue queue_;
  const uint64_t offset_bytes_;
  uint64_t rounds_;
  std::atomic<bool> stop_{false};
  uint8_t stamp_ = 0;
  BlockRequest request_;
  std::promise<void> ended_;
};

struct Way {
  size_t reactors;
  test::Wire wire;
};

class ClientThreads : public test::ClientThreadsRig, public testing::WithParamInterface<Way> {
 protected:
  ClientThreads() : ClientThreadsRig(GetParam().reactors, GetParam().wire) {}
  ~ClientThreads() override {
    // Its memory goes before the session that it is registered with.
    at_home([&] { region_.reset(); });
    if (!beside_disk_) return;
    at_home([&] { beside_region_.reset(); });
    await([&] { return close_beside(); });
    at_home([&] {
      beside_disk_.reset();
      beside_.reset();
    });
  }
  base::Task<void> close_beside() {
    co_await beside_disk_->close();
    co_await beside_->close();
  }
  void open_with_memory(const std::string& name) {
    open(name);
    region_ = std::move(disk_->create_region(workers_wanted() * kThreadBytes)).value();
  }
  static size_t workers_wanted() { return GetParam().reactors * kWorkersEach; }
  void start_workers(uint64_t rounds) { start_workers(queues_, *region_, rounds); }
  void start_workers(const std::vector<BlockQueue>& queues, const Region& region, uint64_t rounds) {
    const size_t first = workers_.size();
    for (size_t i = 0; i < workers_wanted(); ++i) {
      workers_.push_back(std::make_unique<Worker>(queues[i % queues.size()], region, i, rounds));
    }
    for (size_t i = first; i < workers_.size(); ++i) workers_[i]->start();
  }
  void expect_all_well() {
    for (auto& worker : workers_) {
      worker->wait();
      EXPECT_EQ(worker->last, Errc::kOk);
      EXPECT_EQ(worker->wrong, 0u);
    }
  }

  std::unique_ptr<Region> region_;
  std::unique_ptr<RemoteSession> beside_;
  std::unique_ptr<RemoteDevice> beside_disk_;
  std::unique_ptr<Region> beside_region_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_P(ClientThreads, every_reactor_reads_what_it_wrote_while_its_home_looks_on) {
  for (const std::string name : {"ram", "disk.img"}) {
    open_with_memory(name);
    start_workers(200);
    for (int i = 0; i < 50; ++i) {
      (void)status();
      at_home([&] {
        (void)session_->statistics_by_reactor();
        (void)disk_->latency(LatencyKind::kWrite);
      });
    }
    expect_all_well();
    const RemoteDeviceStatus now = status();
    EXPECT_EQ(now.statistics.writes, workers_.size() * 200);
    EXPECT_EQ(now.statistics.reads, workers_.size() * 200);
    for (const uint64_t requests : now.requests_by_reactor) EXPECT_GT(requests, 0u);
    workers_.clear();
    await([&] { return close_disk(); });
    at_home([&] {
      region_.reset();
      disk_.reset();
    });
    await([&] { return close_session(); });
    at_home([&] { session_.reset(); });
  }
}

TEST_P(ClientThreads, a_server_that_stops_and_starts_again_under_load_is_a_delay) {
  open_with_memory("disk.img");
  start_workers(UINT64_MAX);
  const uint16_t port = server_->address().port;
  for (int i = 0; i < 2; ++i) {
    const uint64_t before = workers_.back()->written;
    while (workers_.back()->written == before) std::this_thread::yield();
    server_.reset();
    start_server(port);
  }
  while (status().reopened < 2) std::this_thread::yield();
  for (auto& worker : workers_) worker->stop();
  expect_all_well();
  EXPECT_EQ(status().losses, 0u);
}

TEST_P(ClientThreads, closing_under_load_ends_every_request) {
  open_with_memory("ram");
  start_workers(UINT64_MAX);
  for (auto& worker : workers_) {
    while (worker->written == 0) std::this_thread::yield();
  }
  await([&] { return close_disk(); });
  for (auto& worker : workers_) {
    worker->wait();
    EXPECT_EQ(worker->last, Errc::kCanceled);
  }
  at_home([&] {
    region_.reset();
    disk_.reset();
  });
}

TEST_P(ClientThreads, regions_come_and_go_on_any_thread) {
  open_with_memory("ram");
  start_workers(200);
  std::vector<std::unique_ptr<base::Thread>> others;
  std::vector<std::promise<void>> made(3);
  for (auto& done : made) {
    auto body = [this, &done] {
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(disk_->create_region(16 * kThreadBytes).ok());
      done.set_value();
    };
    others.push_back(std::move(host_->start_thread("worker", body)).value());
  }
  for (auto& done : made) done.get_future().wait();
  expect_all_well();
}

/// Two clients share the turns of the server's reactors, and what their devices move in them.
TEST_P(ClientThreads, two_clients_read_what_each_wrote_at_one_server) {
  open_with_memory("ram");
  await([&] { return open_both("beside", "beside", beside_, beside_disk_); });
  std::vector<BlockQueue> queues;
  at_home([&] { queues = beside_disk_->queues(); });
  beside_region_ = std::move(beside_disk_->create_region(workers_wanted() * kThreadBytes)).value();
  start_workers(200);
  start_workers(queues, *beside_region_, 200);
  expect_all_well();
}

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const test::Wire wire : {test::Wire::kInHost, test::Wire::kTcp}) {
    for (const size_t reactors : {1, 2, 4}) all.push_back({reactors, wire});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Reactors, ClientThreads, testing::ValuesIn(ways()), [](const auto& way) {
  return std::to_string(way.param.reactors) +
         (way.param.wire == test::Wire::kTcp ? "OverTcp" : "InHost");
});

}  // namespace
}  // namespace braid::bnbd
