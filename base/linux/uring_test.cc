// IoQueue on io_uring: file operations on real files, readiness, sleep and wake-up.
#include "base/linux/uring.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <cstring>
#include <latch>
#include <thread>
#include <vector>

#include "base/linux/test_support.h"
#include "base/linux/uring_ops.h"

namespace braid::base {
namespace {

constexpr size_t kUringBlock = 4096;

struct AlignedDelete {
  void operator()(std::byte* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte[], AlignedDelete>;
Buffer make_buffer(size_t size_bytes, uint8_t fill = 0) {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(kUringBlock, size_bytes)));
  std::memset(buffer.get(), fill, size_bytes);
  return buffer;
}

class UringTest : public testing::Test {
 public:
  UringTest() {
    const Reactor::Options options{.name = "r", .poll_budget_ns = 0};
    reactor = std::move(Reactor::create(*host, options)).value();
  }
  std::unique_ptr<File> open(const std::string& root, const std::string& name,
                             OpenOptions options = {}) {
    auto file = host->open_beneath(root, name, options);
    EXPECT_TRUE(file.ok()) << file.error().message();
    return std::move(file).value();
  }
  std::unique_ptr<File> make_and_open(size_t size_bytes, bool direct = true) {
    folder.make_file("disk", size_bytes);
    return open(folder.path(), "disk", {.direct = direct});
  }
  static IoOp& set(IoOp& op, File& file, IoOpcode opcode, uint64_t offset, uint64_t length,
                   std::byte* buffer = nullptr) {
    op.file = &file;
    op.opcode = opcode;
    op.offset_bytes = offset;
    op.length_bytes = length;
    op.buffer = buffer;
    return op;
  }
  /// Runs one operation to its end.
  Errc run(IoOp& op) { return run_io(*reactor, op); }
  Errc run(File& file, IoOpcode opcode, uint64_t offset, uint64_t length,
           std::byte* buffer = nullptr) {
    IoOp op;
    return run(set(op, file, opcode, offset, length, buffer));
  }

  std::unique_ptr<Host> host = quiet_linux_host();
  ScratchFolder folder;
  std::unique_ptr<Reactor> reactor;
};

TEST_F(UringTest, ReadsBackWhatWasWrittenDirectAndThroughTheCache) {
  for (const bool direct : {true, false}) {
    auto file = make_and_open(1 << 20, direct);
    const Buffer out = make_buffer(8 * kUringBlock, 0x5a);
    const Buffer in = make_buffer(8 * kUringBlock);
    EXPECT_EQ(run(*file, IoOpcode::kWrite, 4 * kUringBlock, 8 * kUringBlock, out.get()), Errc::kOk);
    EXPECT_EQ(run(*file, IoOpcode::kFlush, 0, 0), Errc::kOk);
    EXPECT_EQ(run(*file, IoOpcode::kRead, 4 * kUringBlock, 8 * kUringBlock, in.get()), Errc::kOk);
    EXPECT_EQ(std::memcmp(out.get(), in.get(), 8 * kUringBlock), 0);
  }
}

TEST_F(UringTest, ForcedUnitAccessWritesLikeAnyOther) {
  auto file = make_and_open(1 << 20);
  const Buffer out = make_buffer(kUringBlock, 0x33);
  const Buffer in = make_buffer(kUringBlock);
  IoOp op;
  set(op, *file, IoOpcode::kWrite, 0, kUringBlock, out.get()).force_unit_access = true;
  EXPECT_EQ(run(op), Errc::kOk);
  EXPECT_EQ(run(*file, IoOpcode::kRead, 0, kUringBlock, in.get()), Errc::kOk);
  EXPECT_EQ(std::memcmp(out.get(), in.get(), kUringBlock), 0);
}

TEST_F(UringTest, DiscardGivesSpaceBackAndWriteZeroesKeepsIt) {
  // tmpfs has no call for write-zeroes: the second way of doing it.
  for (const std::string& beneath : {testing::TempDir(), std::string("/dev/shm")}) {
    const ScratchFolder scratch(beneath);
    scratch.make_file("disk", 1 << 20);
    auto file = open(scratch.path(), "disk");
    if (!file->info().can_discard) GTEST_SKIP() << beneath << " cannot punch holes";
    const auto blocks = [&] {
      struct stat info;
      EXPECT_EQ(::stat((scratch / "disk").c_str(), &info), 0);
      return static_cast<uint64_t>(info.st_blocks) * 512;
    };
    const Buffer data = make_buffer(64 * kUringBlock, 0x77);
    const Buffer zeroes = make_buffer(64 * kUringBlock);
    for (const IoOpcode opcode : {IoOpcode::kWriteZeroes, IoOpcode::kDiscard}) {
      EXPECT_EQ(run(*file, IoOpcode::kWrite, 0, 64 * kUringBlock, data.get()), Errc::kOk);
      EXPECT_EQ(run(*file, opcode, 16 * kUringBlock, 16 * kUringBlock), Errc::kOk);
      EXPECT_EQ(run(*file, IoOpcode::kFlush, 0, 0), Errc::kOk);
      EXPECT_GE(blocks(), (opcode == IoOpcode::kDiscard ? 48 : 64) * kUringBlock) << beneath;
      if (opcode == IoOpcode::kDiscard) {
        EXPECT_LT(blocks(), 64 * kUringBlock) << beneath;
      }
      const Buffer in = make_buffer(64 * kUringBlock, 1);
      EXPECT_EQ(run(*file, IoOpcode::kRead, 0, 64 * kUringBlock, in.get()), Errc::kOk);
      EXPECT_EQ(std::memcmp(in.get(), data.get(), 16 * kUringBlock), 0);
      EXPECT_EQ(std::memcmp(in.get() + 16 * kUringBlock, zeroes.get(), 16 * kUringBlock), 0);
      EXPECT_EQ(std::memcmp(in.get() + 32 * kUringBlock, data.get(), 32 * kUringBlock), 0);
    }
  }
}

TEST_F(UringTest, RefusesWhatCannotSucceedAndNeverInsideSubmit) {
  auto file = make_and_open(16 * kUringBlock);
  const Buffer buffer = make_buffer(4 * kUringBlock);
  EXPECT_EQ(run(*file, IoOpcode::kRead, 15 * kUringBlock, 2 * kUringBlock, buffer.get()),
            Errc::kOutOfRange);
  EXPECT_EQ(run(*file, IoOpcode::kWrite, UINT64_MAX - 511, kUringBlock, buffer.get()),
            Errc::kOutOfRange);
  EXPECT_EQ(run(*file, IoOpcode::kDiscard, 16 * kUringBlock, 1), Errc::kOutOfRange);
  EXPECT_EQ(run(*file, IoOpcode::kRead, 0, kUringBlock, nullptr), Errc::kInvalid);
  EXPECT_EQ(run(*file, IoOpcode::kRead, 0, 0, buffer.get()), Errc::kOk);
  if (file->info().direct) {
    EXPECT_EQ(run(*file, IoOpcode::kRead, 1, kUringBlock, buffer.get()), Errc::kInvalid);
    EXPECT_EQ(run(*file, IoOpcode::kRead, 0, 100, buffer.get()), Errc::kInvalid);
    EXPECT_EQ(run(*file, IoOpcode::kRead, 0, kUringBlock, buffer.get() + 1), Errc::kInvalid);
  }
  auto read_only = open(folder.path(), "disk", {.read_only = true});
  EXPECT_EQ(run(*read_only, IoOpcode::kWrite, 0, kUringBlock, buffer.get()), Errc::kReadOnly);
  EXPECT_EQ(run(*read_only, IoOpcode::kRead, 0, kUringBlock, buffer.get()), Errc::kOk);

  bool done = false;
  IoOp op;
  set(op, *file, IoOpcode::kRead, 17 * kUringBlock, kUringBlock, buffer.get());
  op.context = &done;
  op.done = [](IoOp& o, Errc) { *static_cast<bool*>(o.context) = true; };
  reactor->io().submit(op);
  EXPECT_FALSE(done);
  EXPECT_EQ(reactor->io().in_flight(), 1u);
  reactor->turn();
  EXPECT_TRUE(done);
  EXPECT_EQ(reactor->io().in_flight(), 0u);
}

TEST_F(UringTest, AFileThatShrankAnswersOutOfRange) {
  auto file = make_and_open(16 * kUringBlock);
  std::filesystem::resize_file(folder / "disk", 2 * kUringBlock);
  const Buffer buffer = make_buffer(4 * kUringBlock);
  EXPECT_EQ(run(*file, IoOpcode::kRead, 0, 4 * kUringBlock, buffer.get()), Errc::kOutOfRange)
      << "a short read is continued, and the rest is not there";
}

TEST_F(UringTest, WhatIsLeftOfAShortTransferIsAskedForWhereItBelongs) {
  auto file = make_and_open(16 * kUringBlock);
  const Buffer buffer = make_buffer(4 * kUringBlock);
  for (const IoOpcode opcode : {IoOpcode::kRead, IoOpcode::kWrite}) {
    IoOp op;
    set(op, *file, opcode, 8 * kUringBlock, 4 * kUringBlock, buffer.get());
    ASSERT_EQ(advance_io(op, kUringBlock), IoProgress::kAgain);
    io_uring_sqe sqe{};
    prepare_io(op, sqe);
    EXPECT_EQ(sqe.addr, reinterpret_cast<uintptr_t>(buffer.get() + kUringBlock));
    EXPECT_EQ(sqe.off, 9 * kUringBlock);
    EXPECT_EQ(sqe.len, 3 * kUringBlock);
  }
}

TEST_F(UringTest, BurstsLargerThanTheRingAllCompleteOnce) {
  static constexpr size_t kCount = 3000;
  auto file = make_and_open(kCount * kUringBlock);
  const Buffer data = make_buffer(kCount * kUringBlock);
  for (size_t i = 0; i < kCount; ++i) {
    std::memset(data.get() + i * kUringBlock, static_cast<int>(i % 251), kUringBlock);
  }
  const Buffer back = make_buffer(kCount * kUringBlock);
  for (const IoOpcode opcode : {IoOpcode::kWrite, IoOpcode::kRead}) {
    std::vector<int> completions(kCount, 0);
    std::vector<IoOp> ops(kCount);
    size_t finished = 0;
    for (size_t i = 0; i < kCount; ++i) {
      IoOp& op = ops[i];
      set(op, *file, opcode, i * kUringBlock, kUringBlock,
          (opcode == IoOpcode::kWrite ? data : back).get() + i * kUringBlock);
      op.context = &completions[i];
      op.done = [](IoOp& o, Errc status) {
        EXPECT_EQ(status, Errc::kOk);
        ++*static_cast<int*>(o.context);
      };
      reactor->io().submit(op);
    }
    while (reactor->io().in_flight() > 0) {
      reactor->turn();
      reactor->io().wait(reactor->now_ns() + kMillisecond);
    }
    for (const int count : completions) finished += count == 1;
    EXPECT_EQ(finished, kCount);
  }
  EXPECT_EQ(std::memcmp(data.get(), back.get(), kCount * kUringBlock), 0);
}

/// From here on the kernel kills this process at any call but exit.
bool forbid_system_calls() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program{.len = std::size(rules), .filter = rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(UringTest, AnIdleTurnMakesNoSystemCall) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer knows no threads in a forked process";
#endif
  reactor.reset();
  host.reset();  // its thread, which a child that has a host of its own must not inherit
  const pid_t child = fork_child([] {
    auto h = quiet_linux_host();
    const Reactor::Options options{.name = "idle"};
    auto r = std::move(Reactor::create(*h, options)).value();
    auto event = h->create_event();
    Watch watch;
    watch.ready = [](Watch&) {};
    r->io().watch(*event, watch);
    while (r->turn()) {
    }
    if (!forbid_system_calls()) return 77;
    for (int i = 0; i < 1000; ++i) {
      if (r->turn()) ::syscall(SYS_exit_group, 1);
    }
    ::syscall(SYS_exit_group, 0);
    return 2;
  });
  const int status = exit_status(child);
  if (status == 77) GTEST_SKIP() << "this kernel has no seccomp filters";
  EXPECT_EQ(status, 0);
}

TEST_F(UringTest, AReactorThatOnlySpinsSeesCompletionsAndEvents) {
  auto file = make_and_open(64 * kUringBlock);
  const Buffer buffer = make_buffer(kUringBlock, 1);
  auto event = host->create_event();
  bool read = false, woken = false;
  IoOp op;
  set(op, *file, IoOpcode::kRead, 0, kUringBlock, buffer.get());
  op.context = &read;
  op.done = [](IoOp& o, Errc status) { *static_cast<bool*>(o.context) = status == Errc::kOk; };
  Watch watch;
  watch.context = &woken;
  watch.ready = [](Watch& w) { *static_cast<bool*>(w.context) = true; };
  reactor->io().watch(*event, watch);
  reactor->turn();
  auto thread = host->start_thread("signaller", [&] { event->signal(); });
  reactor->io().submit(op);
  while (!read || !woken) reactor->turn();  // neither waits nor yields
  reactor->io().unwatch(watch);
}

TEST_F(UringTest, AnIdleReactorUsesNoProcessorTime) {
  const auto used_ns = [] {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<uint64_t>(used.tv_sec) * kSecond + static_cast<uint64_t>(used.tv_nsec);
  };
  const Reactor::Options options{.name = "idle", .poll_budget_ns = 50 * kMicrosecond};
  auto idle = std::move(Reactor::create(*host, options)).value();
  Timer timer([](Timer& t) { static_cast<Reactor*>(t.context)->stop(); }, idle.get());
  idle->schedule_after(timer, 100 * kMillisecond);
  const uint64_t before_ns = used_ns();
  idle->run();
  EXPECT_LT(used_ns() - before_ns, 20 * kMillisecond);
}

struct CountingWatch : Watch {
  CountingWatch() {
    context = this;
    ready = [](Watch& w) {
      auto& self = *static_cast<CountingWatch*>(w.context);
      ++self.count;
      if (self.on_ready) self.on_ready();
    };
  }
  int count = 0;
  std::function<void()> on_ready;
};

TEST_F(UringTest, AnEventWakesASleepingReactorEachTimeItIsSignalled) {
  auto event = host->create_event();
  CountingWatch watch;
  watch.on_ready = [&] { EXPECT_TRUE(event->consume()); };
  reactor->io().watch(*event, watch);
  for (int i = 1; i <= 5; ++i) {
    event->signal();
    while (watch.count < i) {
      reactor->turn();
      if (watch.count < i) reactor->io().wait(kNever);
    }
  }
  EXPECT_FALSE(event->consume());
  reactor->io().unwatch(watch);
  event->signal();
  for (int i = 0; i < 100; ++i) reactor->turn();
  EXPECT_EQ(watch.count, 5);
}

TEST_F(UringTest, AnEventSignalledBeforeItWasWatchedIsReported) {
  auto event = host->create_event();
  event->signal();
  CountingWatch watch;
  reactor->io().watch(*event, watch);
  while (watch.count == 0) {
    reactor->turn();
    if (watch.count == 0) reactor->io().wait(kNever);
  }
  reactor->io().unwatch(watch);
}

TEST_F(UringTest, AReadableSocketIsReportedUntilItIsDrained) {
  const std::string name = unique_name("braid-uring-test");
  auto listener = std::move(host->listen_local(name)).value();
  CountingWatch watch;
  std::vector<std::unique_ptr<LocalSocket>> accepted;
  watch.on_ready = [&] {  // one at a time: what is left must be reported again
    auto socket = listener->accept();
    if (socket.ok()) accepted.push_back(std::move(socket).value());
  };
  reactor->io().watch_readable(listener->handle(), watch);
  std::vector<std::unique_ptr<LocalSocket>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(std::move(host->connect_local(name)).value());
  while (accepted.size() < 3) {
    reactor->turn();
    if (accepted.size() < 3) reactor->io().wait(kNever);
  }
  reactor->io().unwatch(watch);
}

TEST_F(UringTest, WatchesMayBeRemovedAndReplacedFromTheirCallback) {
  auto first = host->create_event();
  auto second = host->create_event();
  CountingWatch a, b;
  a.on_ready = [&] {
    first->consume();
    reactor->io().unwatch(a);
    reactor->io().watch(*second, b);
  };
  reactor->io().watch(*first, a);
  first->signal();
  second->signal();
  while (b.count == 0) {
    reactor->turn();
    if (b.count == 0) reactor->io().wait(kNever);
  }
  EXPECT_EQ(a.count, 1);
  reactor->io().unwatch(b);
}

TEST_F(UringTest, WaitEndsAtItsDeadlineAndAtOnceAfterAWake) {
  const uint64_t begun_ns = host->now_ns();
  reactor->io().wait(begun_ns + 5 * kMillisecond);
  EXPECT_GE(host->now_ns(), begun_ns + 5 * kMillisecond);
  reactor->io().wait(1);  // long past
  reactor->io().wake();
  reactor->io().wait(kNever);  // ended by the wake before it: else the test hangs
}

/// Sleeps that have a timer in the ring from before, which ends in an hour.
class UringTimerTest : public UringTest {
 protected:
  /// A sleep with that deadline begins, and ends at once, as an event is there.
  void arm_for_an_hour() {
    auto event = host->create_event();
    event->signal();
    CountingWatch watch;
    reactor->io().watch(*event, watch);
    while (watch.count == 0) {
      reactor->io().wait(host->now_ns() + 3600 * kSecond);
      reactor->io().poll();
    }
    reactor->io().unwatch(watch);
  }
  /// Ends in time, or the test runs out of its own.
  void rest(uint64_t for_ns) {
    const uint64_t deadline_ns = host->now_ns() + for_ns;
    unsigned sleeps = 0;
    for (; host->now_ns() < deadline_ns; ++sleeps) {
      reactor->io().wait(deadline_ns);
      reactor->io().poll();
    }
    EXPECT_LE(sleeps, 4u) << "it does not sleep";
  }
};

TEST_F(UringTimerTest, EndsEarlierForAnEarlierDeadline) {
  for (const uint64_t after_ms : {20, 5, 30}) {
    arm_for_an_hour();
    rest(after_ms * kMillisecond);
  }
}

TEST_F(UringTimerTest, IsMadeAnewByAnotherThread) {
  std::latch armed(1), slept(1);
  std::thread first([&] {
    arm_for_an_hour();
    armed.count_down();
    slept.wait();
  });
  armed.wait();
  rest(20 * kMillisecond);
  slept.count_down();
  first.join();
  rest(5 * kMillisecond);
}

TEST_F(UringTimerTest, GoesWithTheThreadThatHasArmedIt) {
  std::thread([&] { arm_for_an_hour(); }).join();
  rest(20 * kMillisecond);
}

}  // namespace
}  // namespace braid::base
