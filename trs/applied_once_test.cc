// How often the server's user was given each request, between real threads: four reactors at each
// side, which lend each other permits, and two paths of which one after the other is dropped under
// load and comes back. Each request has a number of its own; the user counts by number.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "trs/threads_rig.h"

namespace braid::trs {
namespace {

using base::Errc;
using testing::on;

constexpr size_t kReactors = 4;
constexpr size_t kWriteBytes = 512;
constexpr uint64_t kNumbersPerWriter = 1 << 17;
// On the client's reactors; together more than there are permits for.
constexpr std::array<size_t, kReactors> kWriters = {40, 20, 6, 1};
constexpr size_t kWritersOfAll = 67;
constexpr uint64_t kNumbers = kWritersOfAll * kNumbersPerWriter;
constexpr int kDrops = 16;

/// Counts by number. Half of the requests are at the user for a while.
class CountingUser final : public ServerUser {
 public:
  void session_opened(ServerSession&) override {}
  void session_closed(ServerSession&) override {}
  void request(ServerRequest& request) override {
    uint64_t number = 0;
    BRAID_ASSERT(request.user_header.size() == sizeof(number));
    std::memcpy(&number, request.user_header.data(), sizeof(number));
    BRAID_ASSERT(number < kNumbers);
    given[number].fetch_add(1);
    if (!request.data.empty() && std::memcmp(request.data.data(), &number, sizeof(number)) != 0) {
      ++wrong_data;
    }
    request.repeats = may_be_done_twice;
    if (number % 2 == 0) {
      request.answer(Errc::kOk);
    } else {
      request.reactor->post([&request] { request.answer(Errc::kOk); });
    }
  }
  std::vector<std::atomic<uint8_t>> given = std::vector<std::atomic<uint8_t>>(kNumbers);
  std::atomic<uint64_t> wrong_data{0};
  bool may_be_done_twice = false;
};

/// Writes, one request after the other, each with the next number.
class Writer : private PermitWaiter {
 public:
  Writer(ClientQueue& queue, uint64_t first_number, const DataBuffer& data)
      : queue_(queue), number_(first_number), end_(first_number + kNumbersPerWriter) {
    PermitWaiter::context = this;
    permit_free = [](PermitWaiter& self) { static_cast<Writer*>(self.context)->submit(); };
    request_.direction = Direction::kWrite;
    request_.user_header = std::as_bytes(std::span(&number_, 1));
    request_.data = data;
    request_.context = this;
    request_.done = [](ClientRequest& self, Errc status) {
      static_cast<Writer*>(self.context)->ended(status);
    };
  }
  /// On the queue's reactor.
  void start() {
    if (request_.data.length_bytes > 0)
      std::memcpy(request_.data.address, &number_, sizeof(number_));
    submit();
  }
  void stop() { stopping_ = true; }
  bool at_rest() const { return at_rest_; }
  /// Its numbers before this one have been written. At rest.
  uint64_t next_number() const { return number_; }
  uint64_t failed() const { return failed_; }

 private:
  void submit() {
    request_.permit = queue_.acquire();
    if (!request_.permit) {
      queue_.wait_for_permit(*this);
      return;
    }
    ended_ = false;
    queue_.submit(request_);
  }
  void ended(Errc status) {
    BRAID_ASSERT(!std::exchange(ended_, true));  // each once
    if (status != Errc::kOk) ++failed_;
    if (++number_ == end_ || stopping_) {
      at_rest_ = true;
    } else {
      start();
    }
  }

  ClientQueue& queue_;
  ClientRequest request_;
  uint64_t number_;
  const uint64_t end_;
  uint64_t failed_ = 0;
  bool ended_ = true;
  std::atomic<bool> stopping_{false}, at_rest_{false};
};

/// How the server guards its chunks.
class AppliedOnce : public ::testing::TestWithParam<ChunkGuard>, protected testing::ThreadsRig {
 protected:
  AppliedOnce() : ThreadsRig(user_, settings()) {}
  ~AppliedOnce() override { take_down(); }
  static testing::ThreadsSettings settings() {
    testing::ThreadsSettings settings;
    settings.client_reactors = settings.server_reactors = kReactors;
    settings.memory_bytes = kWritersOfAll * kWriteBytes;
    settings.guard = GetParam();
    return settings;
  }
  void start_writers(uint32_t bytes) {
    for (size_t reactor = 0; reactor < kReactors; ++reactor) {
      for (size_t i = 0; i < kWriters[reactor]; ++i) {
        const size_t place = writers_.size();
        DataBuffer data;
        if (bytes > 0) data = {mr_.get(), memory_->data() + place * kWriteBytes, bytes};
        auto& queue = session_->queue(reactor);
        writers_.push_back(std::make_unique<Writer>(queue, place * kNumbersPerWriter, data));
        client_threads_[reactor].post([writer = writers_.back().get()] { writer->start(); });
      }
    }
  }
  void end_writers() {
    for (auto& writer : writers_) writer->stop();
    for (auto& writer : writers_) {
      wait_until("the last answer to a writer", [&] { return writer->at_rest(); });
    }
  }
  /// One path, when both are up, while the other carries on.
  void drop(size_t path) { drop_all({path}); }
  /// At once, when both are up. They come back.
  void drop_all(const std::vector<size_t>& paths) {
    wait_until("both paths", [&] { return connected(0) && connected(1); });
    on(client_threads_[0], [&] {
      for (size_t path : paths) EXPECT_TRUE(session_->disconnect_path(path).ok());
    });
    wait_until("the loss of a path", [&] {
      return std::none_of(paths.begin(), paths.end(), [&](size_t path) { return connected(path); });
    });
    on(client_threads_[0], [&] {
      for (size_t path : paths) EXPECT_TRUE(session_->reconnect_path(path).ok());
    });
  }
  /// Of all writers, at rest: each number that was written was given once, no other at all.
  void expect_each_given_once() {
    uint64_t written = 0, not_once = 0;
    for (size_t i = 0; i < writers_.size(); ++i) {
      EXPECT_EQ(writers_[i]->failed(), 0u);
      const uint64_t first = i * kNumbersPerWriter, next = writers_[i]->next_number();
      written += next - first;
      for (uint64_t number = first; number < first + kNumbersPerWriter; ++number)
        if (user_.given[number] != (number < next ? 1 : 0)) ++not_once;
    }
    EXPECT_EQ(not_once, 0u) << "of " << written << " writes";
    EXPECT_EQ(user_.wrong_data, 0u);
    RecordProperty("written", static_cast<int>(written));
  }
  uint64_t failed_over() {
    uint64_t sum = 0;
    on(client_threads_[0], [&] {
      for (const PathStatus& path : session_->paths()) sum += path.failed_over;
    });
    return sum;
  }
  uint64_t of_queues(uint64_t ClientStatistics::*counter) {
    std::atomic<uint64_t> sum{0};
    for (size_t i = 0; i < kReactors; ++i)
      on(client_threads_[i], [&, i] { sum += session_->queue(i).statistics().*counter; });
    return sum;
  }
  /// Every one, wherever it was lent to, can be acquired again.
  void expect_all_permits_back() {
    const uint64_t all = session_->limits().queue_depth - session_->limits().admin_permits;
    const uint64_t deadline_ns = host_->now_ns() + testing::kThreadsPatienceNs;
    while (of_queues(&ClientStatistics::permits_free) != all && host_->now_ns() < deadline_ns)
      std::this_thread::yield();  // some are on their way back to who lent them
    std::array<std::vector<Permit>, kReactors> held;
    size_t count = 0;
    for (size_t i = 0; i < kReactors; ++i) {
      on(client_threads_[i], [&, i] {
        while (Permit permit = session_->queue(i).acquire()) held[i].push_back(std::move(permit));
      });
      count += held[i].size();
    }
    EXPECT_EQ(count, all);
    for (size_t i = 0; i < kReactors; ++i) on(client_threads_[i], [&, i] { held[i].clear(); });
  }
  uint64_t given_more_than_once() const {
    return static_cast<uint64_t>(std::count_if(user_.given.begin(), user_.given.end(),
                                               [](const auto& count) { return count > 1; }));
  }

  CountingUser user_;
  std::vector<std::unique_ptr<Writer>> writers_;
};

TEST_P(AppliedOnce, WhicheverPathIsDroppedUnderLoad) {
  open(true);
  start_writers(kWriteBytes);
  for (int i = 0; i < kDrops; ++i) drop(i % 2);
  end_writers();
  expect_each_given_once();
  EXPECT_EQ(session_user_.reconnects, 0) << "a path was up all the time";
  EXPECT_GT(failed_over(), 0u) << "no request was on a path that was dropped";
  EXPECT_GT(of_queues(&ClientStatistics::permits_lent), 0u);
  expect_all_permits_back();
  RecordProperty("failed_over", static_cast<int>(failed_over()));
  close();
}

// The session that comes back takes over what the one before has done.
TEST_P(AppliedOnce, WhenNoPathIsLeftUnderLoad) {
  open(true);
  start_writers(kWriteBytes);
  for (int i = 0; i < kDrops; ++i) {
    drop_all({0, 1});
    wait_until("the session that comes back", [&] { return session_user_.reconnects > i; });
  }
  end_writers();
  expect_each_given_once();
  EXPECT_GT(of_queues(&ClientStatistics::resent), 0u) << "no request was under way";
  expect_all_permits_back();
  close();
}

// What may be done twice comes to the user again when its path is lost behind its answer: that is
// seen, so a request that must not would be.
TEST_P(AppliedOnce, WouldBeSeenNotToBe) {
  user_.may_be_done_twice = true;
  open(true);
  start_writers(0);
  const uint64_t deadline_ns = host_->now_ns() + 6 * testing::kThreadsPatienceNs;
  for (size_t path = 0; given_more_than_once() == 0 && host_->now_ns() < deadline_ns; path ^= 1)
    drop(path);
  end_writers();
  EXPECT_GT(given_more_than_once(), 0u);
  close();
}

INSTANTIATE_TEST_SUITE_P(Guards, AppliedOnce,
                         ::testing::Values(ChunkGuard::kNone, ChunkGuard::kCopy),
                         [](const auto& guard) { return std::string(to_string(guard.param)); });

}  // namespace
}  // namespace braid::trs
