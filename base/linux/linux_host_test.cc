// LinuxHost: time, identity, workers, shared memory and other processes' memory.
#include "base/linux_host.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <latch>
#include <set>
#include <thread>

#include "base/linux/fd.h"
#include "base/linux/test_support.h"

namespace braid::base {
namespace {

class LinuxHostTest : public testing::Test {
 public:
  std::unique_ptr<Host> host = quiet_linux_host();
};

TEST_F(LinuxHostTest, TimeGoesOnAndEntropyDiffers) {
  const uint64_t before = host->now_ns();
  EXPECT_GE(host->now_ns(), before);
  EXPECT_GT(host->wall_clock_ns(), 1'600'000'000 * kSecond);
  std::array<std::byte, 32> a{}, b{};
  host->random(a);
  host->random(b);
  EXPECT_NE(a, b);
  EXPECT_EQ(host->boot_id().size(), 36u);
  EXPECT_EQ(host->boot_id(), host->boot_id());
  EXPECT_FALSE(host->host_name().empty());
  EXPECT_EQ(host->process_id(), ::getpid());
}

TEST_F(LinuxHostTest, WhoSleepsAtOnceHasNoHeavyFenceForItsPeersToRelyOn) {
  LinuxHostOptions options;
  options.log_sink = make_null_sink();
  options.sleeps_at_once = true;
  const auto host = std::move(create_linux_host(options)).value();
  EXPECT_FALSE(host->has_heavy_fence());
  host->heavy_fence();  // still a fence
}

/// A table that grows makes who opens something wait (make_room_for_descriptors).
TEST_F(LinuxHostTest, TheTableOfDescriptorsHasRoomForAllThatTheProcessMayOpen) {
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  std::ifstream status("/proc/self/status");
  uint64_t room = 0;
  for (std::string line; std::getline(status, line);) {
    if (std::sscanf(line.c_str(), "FDSize: %lu", &room) == 1) break;
  }
  EXPECT_GE(room, std::min<uint64_t>(limit.rlim_cur, 16384));
}

TEST_F(LinuxHostTest, WorkersRunBlockingWorkSideBySide) {
  static constexpr int kWorkers = 100;  // more than devices that hang
  std::latch together(kWorkers);        // passes only when all run at once
  std::atomic<int> done{0};
  for (int i = 0; i < kWorkers; ++i) {
    host->execute([&] {
      together.arrive_and_wait();
      done.fetch_add(1);
    });
  }
  host.reset();  // waits for the work
  EXPECT_EQ(done.load(), kWorkers);
}

TEST_F(LinuxHostTest, OffloadResumesOnTheReactorsThread) {
  const Reactor::Options options{.name = "r"};
  auto reactor = std::move(Reactor::create(*host, options)).value();
  struct Body {
    static Task<int> work(Reactor& r) {
      int turns = 0;
      for (int i = 0; i < 50; ++i) {
        const std::thread::id here = std::this_thread::get_id();
        auto there = std::make_shared<std::thread::id>();
        auto work = [there] { *there = std::this_thread::get_id(); };
        co_await r.offload(std::move(work));
        turns += *there != here && std::this_thread::get_id() == here;
      }
      co_return turns;
    }
  };
  EXPECT_EQ(reactor->run_until_done(Body::work(*reactor)), 50);
}

TEST_F(LinuxHostTest, AReactorMayGoWhileItsWorkStillRuns) {
  std::latch started(1), go_on(1);
  {
    const Reactor::Options options{.name = "r"};
    auto reactor = std::move(Reactor::create(*host, options)).value();
    auto body = [](Reactor& r, std::latch& s, std::latch& g) -> Task<> {
      auto work = [&s, &g] {
        s.count_down();
        g.wait();
      };
      co_await r.offload(std::move(work));
    };
    reactor->spawn(body(*reactor, started, go_on));
    started.wait();
  }
  go_on.count_down();
  host.reset();  // waits for the work, which uses the latches
}

TEST_F(LinuxHostTest, ThreadsRunAndAreJoined) {
  bool ran = false;
  {
    auto thread = host->start_thread("braid-test-thread", [&] { ran = true; });
  }
  EXPECT_TRUE(ran);
}

TEST_F(LinuxHostTest, FindsTheSegmentThatHoldsAnAddress) {
  auto a = std::move(host->create_segment(10'000, "a")).value();
  auto b = std::move(host->create_segment(4096, "b")).value();
  EXPECT_EQ(a->size(), 12'288u) << "whole pages";
  EXPECT_EQ(a->data()[9'999], std::byte{0});
  EXPECT_EQ(host->find_segment(a->data(), a->size()), a.get());
  EXPECT_EQ(host->find_segment(a->data() + 12'287, 1), a.get());
  EXPECT_EQ(host->find_segment(a->data() + 12'287, 2), nullptr);
  EXPECT_EQ(host->find_segment(a->data(), SIZE_MAX), nullptr);
  EXPECT_EQ(host->find_segment(b->data() + 5, 10), b.get());
  EXPECT_EQ(host->find_segment(&a, 1), nullptr);
  const std::byte* const gone = b->data();
  b.reset();
  EXPECT_EQ(host->find_segment(gone, 1), nullptr);
  EXPECT_EQ(host->create_segment(0, "empty").code(), Errc::kInvalid);
  EXPECT_EQ(host->create_segment(SIZE_MAX, "huge").code(), Errc::kInvalid);
}

TEST_F(LinuxHostTest, SegmentsTakeMemoryAsTheyAreUsed) {
  const auto there = [&](size_t size_bytes, size_t used_bytes) {
    auto segment = std::move(host->create_segment(size_bytes, "test")).value();
    std::ranges::fill(std::span(segment->data(), used_bytes), std::byte{1});
    struct stat now;
    EXPECT_EQ(::fstat(segment->handle().fd(), &now), 0);
    return static_cast<size_t>(now.st_blocks) * 512;
  };
  EXPECT_EQ(there(100 << 10, 0), 0u);
  EXPECT_EQ(there(100 << 10, 8 << 10), 8u << 10);
  EXPECT_EQ(there(64 << 20, 0), 0u);
}

TEST_F(LinuxHostTest, DiscardMakesPagesZeroAndGivesThemBack) {
  auto segment = std::move(host->create_segment(64 << 10, "test")).value();
  std::memset(segment->data(), 7, segment->size());
  struct stat before, after;
  ASSERT_EQ(::fstat(segment->handle().fd(), &before), 0);
  segment->discard(4096, 32768);
  ASSERT_EQ(::fstat(segment->handle().fd(), &after), 0);
  EXPECT_EQ(before.st_blocks - after.st_blocks, 32768 / 512);
  for (size_t i = 0; i < segment->size(); ++i) {
    ASSERT_EQ(segment->data()[i], std::byte(i >= 4096 && i < 36864 ? 0 : 7)) << i;
  }
}

TEST_F(LinuxHostTest, RefusesToMapMemoryThatAPeerCouldTakeAway) {
  const auto map = [&](int fd, size_t size) {
    return host->map_segment(std::make_unique<Fd>(fd), size);
  };
  const int unsealed = ::memfd_create("braid-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(unsealed, 8192), 0);
  EXPECT_EQ(map(unsealed, 4096).code(), Errc::kProtocol);
  EXPECT_EQ(map(::open("/dev/zero", O_RDWR | O_CLOEXEC), 4096).code(), Errc::kProtocol);

  auto segment = std::move(host->create_segment(8192, "a")).value();
  auto larger = host->map_segment(std::move(segment->handle().duplicate()).value(), 8193);
  EXPECT_EQ(larger.code(), Errc::kProtocol);
  auto same = host->map_segment(std::move(segment->handle().duplicate()).value(), 8192);
  ASSERT_TRUE(same.ok());
  same.value()->data()[8191] = std::byte{7};
  EXPECT_EQ(segment->data()[8191], std::byte{7});
}

// One process makes a segment and an event and passes them; the other maps, writes, signals, and
// copies from memory that is not in a segment.
struct Announcement {
  uint64_t private_address = 0;
};

int child_of_two(const std::string& name) {
  auto host = quiet_linux_host();
  std::unique_ptr<LocalSocket> socket;
  while (socket == nullptr) {
    auto connected = host->connect_local(name);
    if (connected.ok()) socket = std::move(connected).value();
    host->yield();
  }
  Announcement announcement;
  std::vector<std::unique_ptr<Handle>> handles;
  const auto room = std::as_writable_bytes(std::span(&announcement, 1));
  for (;;) {
    const auto got = socket->receive(room, handles);
    if (got.ok()) break;
    if (got.code() != Errc::kWouldBlock) return 10;
    host->yield();
  }
  if (handles.size() != 2) return 11;
  auto segment = host->map_segment(std::move(handles[0]), 8192);
  auto event = host->adopt_event(std::move(handles[1]));
  if (!segment.ok() || !event.ok()) return 12;
  std::memcpy(segment.value()->data() + 100, "through the segment", 20);

  auto parent = host->open_process(socket->peer());
  if (!parent.ok()) return 13;
  std::array<std::byte, 3> first{}, rest{};
  const std::span<std::byte> pieces[] = {first, rest};
  if (parent.value()->read(announcement.private_address, pieces) != Errc::kOk) return 14;
  const std::span<const std::byte> swapped[] = {rest, first};
  if (parent.value()->write(announcement.private_address, swapped) != Errc::kOk) return 15;
  if (parent.value()->read(8, pieces) != Errc::kOutOfRange) return 16;
  event.value()->signal();
  return 0;
}

TEST_F(LinuxHostTest, TwoProcessesShareSegmentsEventsAndMemory) {
  const std::string name = unique_name("braid-two");
  host.reset();  // its thread, which a child that has a host of its own must not inherit
  const pid_t child = fork_child([&] { return child_of_two(name); });
  host = quiet_linux_host();
  auto listener = std::move(host->listen_local(name)).value();
  Result<std::unique_ptr<LocalSocket>> accepted = listener->accept();
  while (accepted.code() == Errc::kWouldBlock) {
    host->yield();
    accepted = listener->accept();
  }
  ASSERT_TRUE(accepted.ok());
  auto socket = std::move(accepted).value();
  EXPECT_EQ(socket->peer().pid, child);

  auto segment = std::move(host->create_segment(8192, "shared")).value();
  auto event = host->create_event();
  std::array<char, 7> memory{"abcdef"};
  const Announcement announcement{.private_address = reinterpret_cast<uint64_t>(memory.data())};
  const Handle* const handles[] = {&segment->handle(), &event->handle()};
  ASSERT_TRUE(socket->send(std::as_bytes(std::span(&announcement, 1)), handles).ok());
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_TRUE(event->consume());
  EXPECT_STREQ(reinterpret_cast<const char*>(segment->data()) + 100, "through the segment");
  EXPECT_STREQ(memory.data(), "defabc");
}

TEST_F(LinuxHostTest, CopiesBetweenManyPiecesAndOneRange) {
  // To and from this process itself: more pieces than one call takes, empty ones among them.
  const PeerIdentity self{.pid = ::getpid(), .uid = ::getuid()};
  auto process = std::move(host->open_process(self)).value();
  std::vector<std::byte> source(10'000), target(10'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7);
  std::vector<std::span<const std::byte>> pieces;
  for (size_t at = 0, n = 0; at < source.size(); at += n, n = (n + 13) % 71) {
    n = std::min(n, source.size() - at);
    pieces.push_back(std::span(source).subspan(at, n));
  }
  ASSERT_GT(pieces.size(), 128u);
  EXPECT_EQ(process->write(reinterpret_cast<uint64_t>(target.data()), pieces), Errc::kOk);
  EXPECT_EQ(source, target);
}

TEST_F(LinuxHostTest, ACopyThatRunsIntoAHoleIsOutOfRange) {
  const PeerIdentity self{.pid = ::getpid(), .uid = ::getuid()};
  auto process = std::move(host->open_process(self)).value();
  auto* const pages = static_cast<std::byte*>(
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(::munmap(pages + 4096, 4096), 0);
  std::vector<std::byte> buffer(200);
  const std::span<std::byte> pieces[] = {buffer};
  const auto address = reinterpret_cast<uint64_t>(pages);
  EXPECT_EQ(process->read(address + 4096 - 200, pieces), Errc::kOk);
  EXPECT_EQ(process->read(address + 4096 - 100, pieces), Errc::kOutOfRange);
  ::munmap(pages, 4096);
}

/// What is small goes by another call of the kernel's: pieces, holes and the largest of them.
TEST_F(LinuxHostTest, SmallCopiesAreLikeLargeOnes) {
  const PeerIdentity self{.pid = ::getpid(), .uid = ::getuid()};
  auto process = std::move(host->open_process(self)).value();
  for (const size_t size : {8u, 4095u, 4096u, 4097u}) {
    std::vector<std::byte> source(size), target(size), back(size);
    for (size_t i = 0; i < size; ++i) source[i] = static_cast<std::byte>(i * 7 + size);
    const auto address = reinterpret_cast<uint64_t>(target.data());
    const std::span all(source);
    const std::span<const std::byte> pieces[] = {all.first(3), all.subspan(3, 0), all.subspan(3)};
    EXPECT_EQ(process->write(address, pieces), Errc::kOk);
    EXPECT_EQ(source, target);
    const std::span<std::byte> ends[] = {std::span(back).first(5), std::span(back).subspan(5)};
    EXPECT_EQ(process->read(address, ends), Errc::kOk);
    EXPECT_EQ(source, back);
  }
  std::byte one{};
  const std::span<const std::byte> piece[] = {std::span(&one, 1)};
  for (const uint64_t nowhere : {uint64_t{8}, uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX})
    EXPECT_EQ(process->write(nowhere, piece), Errc::kOutOfRange) << nowhere;
}

TEST_F(LinuxHostTest, ADeadProcessIsDisconnectedAndAForeignOneRefused) {
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  const pid_t child = fork_child([&] {
    char c;
    return static_cast<int>(::read(gate[0], &c, 1));
  });
  EXPECT_EQ(host->open_process({.pid = child, .uid = ::getuid() + 1}).code(), Errc::kPermission);
  auto process = std::move(host->open_process({.pid = child, .uid = ::getuid()})).value();
  EXPECT_TRUE(process->alive());
  ASSERT_EQ(::write(gate[1], "x", 1), 1);
  EXPECT_EQ(exit_status(child), 1);
  EXPECT_FALSE(process->alive());
  std::array<std::byte, 4> buffer{};
  const std::span<std::byte> pieces[] = {buffer};
  EXPECT_EQ(process->read(reinterpret_cast<uint64_t>(&buffer), pieces), Errc::kDisconnected);
  EXPECT_EQ(host->open_process({.pid = child, .uid = ::getuid()}).code(), Errc::kNotFound);
  ::close(gate[0]);
  ::close(gate[1]);
}

TEST_F(LinuxHostTest, APublishedSegmentIsWrittenByItsMakerOnly) {
  auto published = std::move(host->create_published_segment(5000, "test")).value();
  EXPECT_EQ(host->find_segment(published->data(), 1), nullptr);
  auto mapped = host->map_segment(std::move(published->handle().duplicate()).value(), 5000);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  published->data()[4999] = std::byte{7};
  EXPECT_EQ(mapped.value()->data()[4999], std::byte{7});
  const int fd = published->handle().fd();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(::mprotect(mapped.value()->data(), 4096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(::ftruncate(fd, 0), -1);
}

TEST_F(LinuxHostTest, LocalAddressesAreTold) {
  EXPECT_TRUE(host->is_local_address("127.0.0.1"));
  EXPECT_TRUE(host->is_local_address("127.1.2.3"));
  EXPECT_FALSE(host->is_local_address("192.0.2.77")) << "kept for documentation, nobody has it";
  EXPECT_FALSE(host->is_local_address("2001:db8::77"));
  EXPECT_FALSE(host->is_local_address("localhost"));
  EXPECT_FALSE(host->is_local_address(""));
  EXPECT_EQ(host->user_id(), ::geteuid());
}

}  // namespace
}  // namespace braid::base
