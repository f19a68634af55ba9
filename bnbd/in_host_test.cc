// Client and server on the real host: two reactors on threads of their own, the software HCA
// through shared memory, a real file.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/linux_host.h"
#include "base/linux_test_folder.h"
#include "bnbd/frontend/fuse_server.h"
#include "bnbd/frontend/test_fuse_kernel.h"
#include "bnbd/remote.h"
#include "bnbd/server.h"
#include "bnbd/test_block.h"
#include "bnbd/test_server_thread.h"
#include "vhca/soft_device.h"

// Of the sanitizers' allocators: tells of each allocation in the process, whatever its thread.
extern "C" __attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(  // NOLINT
    void (*allocated)(const volatile void*, size_t), void (*freed)(const volatile void*));

namespace braid::bnbd {
namespace {

std::atomic<uint64_t> allocations{0};

/// False where nobody tells: in builds without a sanitizer.
bool count_allocations() {
  static const bool kCounting =
      __sanitizer_install_malloc_and_free_hooks != nullptr &&
      __sanitizer_install_malloc_and_free_hooks([](const volatile void*, size_t) { ++allocations; },
                                                [](const volatile void*) {}) > 0;
  return kCounting;
}

/// Of several rounds, the fewest allocations in one: others in the process have their own at times
/// (a line of the log, a heartbeat that was late).
template <typename Round>
uint64_t fewest_allocations(Round round) {
  uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 20 && fewest > 0; ++i) {
    const uint64_t before = allocations;
    round();
    fewest = std::min<uint64_t>(fewest, allocations - before);
  }
  return fewest;
}

using base::Errc;
using test::Io;
using test::ServerThread;

class InHost : public testing::TestWithParam<size_t> {
 protected:
  InHost() {
    folder_.make_file("disk.img", 8 << 20);
    base::LinuxHostOptions quiet;
    quiet.log_sink = base::make_null_sink();
    host_ = std::move(base::create_linux_host(quiet)).value();
    reactor_ = std::move(base::Reactor::create(*host_, {})).value();
    device_ = std::move(vhca::create_soft_device(*host_, *reactor_)).value();
    server_ = std::make_unique<ServerThread>(*host_, root_, 0, GetParam());
  }
  ~InHost() override {
    if (session_) reactor_->run_until_done(close_all());
    disk_.reset();
    session_.reset();
    server_.reset();
    device_.reset();
  }
  base::Task<bool> close_all() {
    co_await session_->close();
    co_return true;
  }
  void open(const std::string& name) {
    RemoteSessionOptions options;
    options.transport.session_name = "test";
    options.transport.server = server_->address();
    options.transport.reactors = {reactor_.get()};
    auto session = reactor_->run_until_done(RemoteSession::open(*device_, std::move(options)));
    ASSERT_TRUE(session.ok()) << session.error().message();
    session_ = std::move(session).value();
    RemoteDeviceOptions device;
    device.name = name;
    auto opened = reactor_->run_until_done(session_->open_device(std::move(device)));
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    disk_ = std::move(opened).value();
  }
  Errc wait(Io& io) { return reactor_->run_until_done(waiting(*reactor_, io)); }
  static base::Task<Errc> waiting(base::Reactor& reactor, Io& io) {
    while (!io.status.has_value()) co_await reactor.sleep_ns(0);
    co_return *io.status;
  }
  /// Writes stamps everywhere, many at a time, and reads them back.
  void exercise(uint64_t length, int stamp) {
    std::deque<Io> writes;
    const uint64_t count = (4 << 20) / length;
    for (uint64_t i = 0; i < count; ++i) {
      writes.emplace_back(BlockOp::kWrite, i * length, length, static_cast<int>(i) + stamp);
      disk_->submit(writes.back().request);
    }
    for (Io& io : writes) ASSERT_EQ(wait(io), Errc::kOk);
    std::deque<Io> reads;
    for (uint64_t i = 0; i < count; ++i) {
      reads.emplace_back(BlockOp::kRead, i * length, length, 0x55);
      disk_->submit(reads.back().request);
    }
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(wait(reads[i]), Errc::kOk);
      ASSERT_TRUE(reads[i].all(static_cast<int>((i + static_cast<uint64_t>(stamp)) % 256))) << i;
    }
  }

  const base::ScratchFolder folder_{base::folder_on_disk()};
  const std::string& root_ = folder_.path();
  std::unique_ptr<base::Host> host_;
  std::unique_ptr<base::Reactor> reactor_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<ServerThread> server_;
  std::unique_ptr<RemoteSession> session_;
  std::unique_ptr<RemoteDevice> disk_;
};

TEST_P(InHost, a_file_keeps_what_is_written_in_every_size) {
  open("disk.img");
  for (uint64_t length : {4096u, 65536u, 1u << 20})
    exercise(length, static_cast<int>(length >> 12));
  Io flush(BlockOp::kFlush);
  disk_->submit(flush.request);
  EXPECT_EQ(wait(flush), Errc::kOk);
}

TEST_P(InHost, memory_keeps_what_is_written_and_lends_it) {
  open("ram");
  for (uint64_t length : {4096u, 65536u}) exercise(length, 3);
  const uint64_t lent =
      server_->ask<uint64_t>([&] { return server_->server().exports().front().statistics.lent; });
  EXPECT_GT(lent, 0u);
}

TEST_P(InHost, a_server_that_stops_and_starts_again_is_a_delay) {
  open("disk.img");
  exercise(4096, 1);
  const uint16_t port = server_->address().port;
  server_.reset();
  Io read(BlockOp::kRead, 4096, 4096);
  disk_->submit(read.request);
  server_ = std::make_unique<ServerThread>(*host_, root_, port, GetParam());
  EXPECT_EQ(wait(read), Errc::kOk);
  EXPECT_TRUE(read.all(2));
  exercise(65536, 2);
  EXPECT_EQ(disk_->status().losses, 0u);
}

TEST_P(InHost, a_write_reaches_the_disk_from_where_it_arrived) {
  open("disk.img");
  exercise(65536, 5);
  const BlockStatistics disk =
      server_->ask<BlockStatistics>([&] { return server_->server().exports().back().statistics; });
  EXPECT_GE(disk.writes, 64u);
  EXPECT_EQ(disk.copies, 0u) << "chunks are where O_DIRECT wants them";
}

class Allocations : public InHost {
 protected:
  void SetUp() override {
    if (!count_allocations()) GTEST_SKIP() << "no sanitizer that tells of allocations";
    const uint64_t before = allocations;
    const std::vector<char> some(1000);
    ASSERT_GT(allocations, before) << "the sanitizer does not tell";
  }
  /// Takes turns until the condition holds; allocates nothing itself.
  template <typename Condition>
  void turn_until(Condition condition) {
    while (!condition()) {
      reactor_->turn();
      ::sched_yield();
    }
  }
  void expect_none(const std::string& name) {
    open(name);
    std::deque<Io> requests;
    for (uint64_t i = 0; i < 64; ++i)
      requests.emplace_back(i % 2 == 0 ? BlockOp::kWrite : BlockOp::kRead, i * 4096, 4096, 1);
    requests.emplace_back(BlockOp::kFlush);
    EXPECT_EQ(fewest_allocations([&] {
                for (Io& io : requests) {
                  io.status.reset();
                  disk_->submit(io.request);
                }
                for (Io& io : requests) turn_until([&] { return io.status.has_value(); });
              }),
              0u);
    for (const Io& io : requests) EXPECT_EQ(io.status, Errc::kOk);
  }
};

TEST_P(Allocations, there_are_none_for_requests_to_a_file) {
  expect_none("disk.img");
}
TEST_P(Allocations, there_are_none_for_requests_to_memory) {
  expect_none("ram");
}

TEST_P(Allocations, of_a_kernel_request_is_one_which_is_libfuses) {
  constexpr uint64_t kRequests = 64;
  open("disk.img");
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  test::FuseKernelEnd kernel{UniqueFd(ends[0])};
  auto slots =
      SlotPool<FuseServer::Slot>::create(*disk_, 4, 4, FuseServer::max_read_bytes(disk_->info()));
  ASSERT_TRUE(slots.ok()) << slots.error().message();
  auto server = FuseServer::create(*reactor_, *disk_, "disk", std::move(*slots), UniqueFd(ends[1]));
  ASSERT_TRUE(server.ok()) << server.error().message();
  kernel.send_init();
  turn_until([&] { return kernel.answered(); });

  const uint64_t allocated = fewest_allocations([&] {
    for (uint64_t i = 0; i < kRequests; ++i) {
      if (i % 2 == 0) {
        kernel.send_write(i * 4096, 4096);
      } else {
        fuse_read_in read{};
        read.offset = i * 4096;
        read.size = 4096;
        kernel.send(FUSE_READ, read, 0);
      }
      turn_until([&] { return kernel.answered(); });
    }
  });
  EXPECT_LE(allocated, kRequests);
  EXPECT_EQ((*server)->statistics().errors, 0u);
}

INSTANTIATE_TEST_SUITE_P(Reactors, Allocations, testing::Values(1, 2),
                         [](const auto& count) { return std::to_string(count.param); });
INSTANTIATE_TEST_SUITE_P(Reactors, InHost, testing::Values(1, 2),
                         [](const auto& count) { return std::to_string(count.param); });

}  // namespace
}  // namespace braid::bnbd
