// The world drives reactors, kills, stops and restarts processes, and replays bit for bit.
#include "base/sim/world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/reactor.h"
#include "base/sim/host.h"
#include "base/sim_charge.h"

namespace braid::base::sim {
namespace {

/// A process with reactors and nothing else; tests spawn what they need.
class Program : public SimProgram {
 public:
  Program(SimHost& host, int reactors) {
    for (int i = 0; i < reactors; ++i) {
      const Reactor::Options options{.name = "r" + std::to_string(i)};
      reactors_.push_back(std::move(*Reactor::create(host, options)));
      host.drive(*reactors_.back());
    }
  }
  Reactor& reactor(size_t i = 0) { return *reactors_[i]; }

 private:
  std::vector<std::unique_ptr<Reactor>> reactors_;
};

struct Process {
  SimHost& host;
  Program& program;
  Reactor& reactor(size_t i = 0) { return program.reactor(i); }
};

Process start(SimMachine& machine, int reactors = 1) {
  SimHost& host = machine.start_process("p");
  auto program = std::make_unique<Program>(host, reactors);
  Program& its = *program;
  host.run(std::move(program));
  return {host, its};
}

TEST(SimWorld, TimeMovesFromEventToEventInOrder) {
  SimWorld world({});
  std::vector<int> seen;
  const uint64_t begin_ns = world.now_ns();
  world.after(20, [&] { seen.push_back(3); });
  world.after(10, [&] { seen.push_back(1); });
  world.after(10, [&] { seen.push_back(2); });
  world.run_for(15);
  EXPECT_EQ(seen, (std::vector<int>{1, 2}));
  EXPECT_EQ(world.now_ns(), begin_ns + 15);
  EXPECT_TRUE(world.run_until([&] { return seen.size() == 3; }, 100));
  EXPECT_EQ(world.now_ns(), begin_ns + 20);
  EXPECT_FALSE(world.run_until([] { return false; }, 100));
}

Task<void> sleeper(Reactor& reactor, std::vector<uint64_t>& woke) {
  for (int i = 0; i < 3; ++i) {
    co_await reactor.sleep_ns(5 * kMillisecond);
    woke.push_back(reactor.now_ns());
  }
}

TEST(SimWorld, ReactorsSleepUntilTheirTimers) {
  SimWorldOptions options;
  options.timing.late_per_million = 0;
  SimWorld world(options);
  Process process = start(world.add_machine("m"));
  std::vector<uint64_t> woke;
  const uint64_t begin_ns = world.now_ns();
  process.reactor().spawn(sleeper(process.reactor(), woke));
  world.run_for(kSecond);
  ASSERT_EQ(woke.size(), 3u);
  for (size_t i = 0; i < woke.size(); ++i) {
    EXPECT_GE(woke[i], begin_ns + (i + 1) * 5 * kMillisecond);
    EXPECT_LT(woke[i], begin_ns + (i + 1) * 5 * kMillisecond + 50 * kMicrosecond);
  }
  EXPECT_LT(world.counters().turns, 40u) << "an idle reactor must sleep";
}

TEST(SimWorld, PostsAndOffloadedWorkWakeASleepingReactor) {
  SimWorld world({});
  Process process = start(world.add_machine("m"), 2);
  world.run_for(kSecond);
  int steps = 0;
  process.reactor(0).post([&] {
    ++steps;
    process.reactor(1).post([&] { ++steps; });
  });
  const auto offload = [](Reactor& reactor, int& count) -> Task<void> {
    co_await reactor.offload([&count] { ++count; });
    ++count;
  };
  process.reactor(1).spawn(offload(process.reactor(1), steps));
  EXPECT_TRUE(world.run_until([&] { return steps == 4; }, kSecond));
}

TEST(SimWorld, AReactorThatHangsGetsNoTurnWhateverWakesIt) {
  SimWorldOptions options;
  options.timing.late_per_million = 0;
  SimWorld world(options);
  Process process = start(world.add_machine("m"), 2);
  world.run_for(kMillisecond);
  const uint64_t begin_ns = world.now_ns();
  process.host.hang_reactor(0, kSecond);
  EXPECT_TRUE(process.host.disturbed_since(begin_ns));
  std::array<uint64_t, 2> ran_at{};
  for (size_t i = 0; i < 2; ++i)
    process.reactor(i).post([&, i] { ran_at[i] = world.now_ns() - begin_ns; });
  world.run_for(2 * kSecond);
  EXPECT_GE(ran_at[0], kSecond);
  EXPECT_LT(ran_at[0], kSecond + kMillisecond);
  EXPECT_LT(ran_at[1], kMillisecond) << "the other reactor goes on";
  EXPECT_FALSE(process.host.disturbed_since(begin_ns + kSecond));
}

// A late turn is late even if something happens meanwhile.
TEST(SimWorld, ATurnThatIsChargedTakesAsLongWhateverWakesTheReactor) {
  SimWorldOptions options;
  options.timing.late_per_million = 0;
  SimWorld world(options);
  Process process = start(world.add_machine("m"));
  Process free = start(world.add_machine("n"));
  uint64_t work_ns = 0;
  charge_turns(process.reactor(), [&] { return std::exchange(work_ns, 0); });
  world.run_for(kSecond);
  process.reactor().post([&] { work_ns = kMillisecond; });
  world.run_for(100 * kMicrosecond);  // it is at work
  ASSERT_EQ(work_ns, 0u);
  uint64_t ran_ns = 0, ran_free_ns = 0;
  const uint64_t posted_ns = world.now_ns();
  process.reactor().post([&] { ran_ns = world.now_ns(); });
  free.reactor().post([&] { ran_free_ns = world.now_ns(); });
  world.run_for(kSecond);
  EXPECT_GT(ran_ns, posted_ns + 800 * kMicrosecond);
  EXPECT_LT(ran_ns, posted_ns + kMillisecond + 10 * kMicrosecond);
  EXPECT_LT(ran_free_ns, posted_ns + 10 * kMicrosecond);
}

TEST(SimWorld, AWakeUpDoesNotCancelALateTurn) {
  SimWorldOptions options;
  options.timing.late_per_million = 1'000'000;
  SimWorld world(options);
  Process process = start(world.add_machine("m"));
  uint64_t latest_ns = 0;
  for (int i = 0; i < 50; ++i) {
    uint64_t posted_ns = world.now_ns();
    process.reactor().post([&] { latest_ns = std::max(latest_ns, world.now_ns() - posted_ns); });
    for (int wakes = 0; wakes < 10; ++wakes) {
      world.run_for(20 * kMicrosecond);
      process.reactor().wake();
    }
    world.run_for(kSecond);
  }
  EXPECT_GT(latest_ns, 5 * kMillisecond);
}

// What was posted may be part of an object that goes before the reactor does.
class Postman : public SimProgram {
 public:
  explicit Postman(SimHost& host) : reactors_(host, 2), letter_(std::make_unique<Message>()) {
    letter_->run = [](Message&) { ADD_FAILURE() << "nothing runs in a dead process"; };
  }
  void post() { reactors_.reactor(1).post(*letter_); }

 private:
  Program reactors_;
  std::unique_ptr<Message> letter_;  // destroyed first
};

TEST(SimWorld, AMessageUnderWayAtAKillIsForgotten) {
  SimWorld world({});
  SimHost& host = world.add_machine("m").start_process("p");
  auto program = std::make_unique<Postman>(host);
  Postman& postman = *program;
  host.run(std::move(program));
  world.run_for(kMillisecond);
  postman.post();
  host.kill();
  world.run_for(kMillisecond);
}

TEST(SimWorld, AnEventWakesItsWatcherOncePerSignal) {
  SimWorld world({});
  Process process = start(world.add_machine("m"));
  auto event = process.host.create_event();
  auto adopted = *process.host.adopt_event(*event->handle().duplicate());
  struct Seen {
    Event& event;
    int times = 0;
  } seen{*event};
  Watch watch;
  watch.context = &seen;
  watch.ready = [](Watch& w) {
    auto& s = *static_cast<Seen*>(w.context);
    EXPECT_TRUE(s.event.consume());
    EXPECT_FALSE(s.event.consume());
    ++s.times;
  };
  event->signal();  // before the watch: must not be lost
  process.reactor().io().watch(*event, watch);
  world.run_for(kMillisecond);
  EXPECT_EQ(seen.times, 1);
  adopted->signal();
  world.run_for(kMillisecond);
  EXPECT_EQ(seen.times, 2);
  process.reactor().io().unwatch(watch);
  event->signal();
  world.run_for(kMillisecond);
  EXPECT_EQ(seen.times, 2);
}

Task<void> ticker(Reactor& reactor, int& ticks) {
  for (;;) {
    co_await reactor.sleep_ns(kMillisecond);
    ++ticks;
  }
}

TEST(SimWorld, AStoppedProcessDoesNotRunAndComesLate) {
  SimWorld world({});
  Process process = start(world.add_machine("m"));
  int ticks = 0;
  process.reactor().spawn(ticker(process.reactor(), ticks));
  world.run_for(10 * kMillisecond + kMillisecond / 2);
  const int before = ticks;
  EXPECT_GE(before, 8);
  process.host.pause();
  world.run_for(kSecond);
  EXPECT_EQ(ticks, before);
  process.host.resume();
  EXPECT_TRUE(world.run_until([&] { return ticks == before + 1; }, kMillisecond));
  EXPECT_GE(process.reactor().last_lateness_ns(), 900 * kMillisecond);
}

struct Farewell {
  SimHost& host;
  ~Farewell() {
    host.execute([] { FAIL() << "a dead process ran something"; });
    EXPECT_EQ(host.create_io_queue().code(), Errc::kDead);
    EXPECT_EQ(host.create_segment(1, "x").code(), Errc::kDead);
  }
};

Task<void> with_farewell(Reactor& reactor, int& ticks) {
  const Farewell farewell{static_cast<SimHost&>(reactor.host())};
  co_await ticker(reactor, ticks);
}

TEST(SimWorld, AKilledProcessNeverRunsAgainAndItsHostRefuses) {
  SimWorld world({});
  SimMachine& machine = world.add_machine("m");
  Process process = start(machine);
  int ticks = 0;
  process.reactor().spawn(with_farewell(process.reactor(), ticks));
  world.run_for(10 * kMillisecond);
  const int before = ticks;
  process.host.kill();
  EXPECT_TRUE(process.host.dead());
  world.run_for(kSecond);
  EXPECT_EQ(ticks, before);
  EXPECT_EQ(process.host.open_beneath("/", "x", {}).code(), Errc::kDead);
}

TEST(SimWorld, BootIdChangesWithPowerLossOnly) {
  SimWorld world({});
  SimMachine& machine = world.add_machine("m");
  const std::string first = start(machine).host.boot_id();
  EXPECT_EQ(first.size(), 36u);
  EXPECT_EQ(start(machine).host.boot_id(), first);
  machine.power_loss();
  machine.power_on();
  EXPECT_NE(start(machine).host.boot_id(), first);
}

TEST(SimWorld, NamesThatLeaveTheRootAreRefused) {
  SimWorld world({});
  SimMachine& machine = world.add_machine("m");
  machine.add_disk("/exports/a", {});
  SimDiskOptions disk;
  disk.block_device = true;
  machine.add_disk("/exports/disk", disk);
  SimHost& host = start(machine).host;
  EXPECT_TRUE(host.open_beneath("/exports", "a", {}).ok());
  EXPECT_EQ(host.open_beneath("/exports", "b", {}).code(), Errc::kNotFound);
  for (const char* name : {"", "/a", "../a", "x/../a", ".."})
    EXPECT_EQ(host.open_beneath("/exports", name, {}).code(), Errc::kInvalid) << name;
  EXPECT_EQ(host.open_beneath("/exports", std::string(256, 'a'), {}).code(), Errc::kInvalid);
  EXPECT_EQ(host.open_beneath("/exports", std::string("a\0b", 3), {}).code(), Errc::kInvalid);
  EXPECT_EQ(host.open_beneath("/exports", "disk", {}).code(), Errc::kPermission);
  OpenOptions block;
  block.allow_block_device = true;
  EXPECT_TRUE(host.open_beneath("/exports", "disk", block).ok());
}

TEST(SimWorld, SegmentsAreFoundByAddressAndSharedByHandle) {
  SimWorld world({});
  SimHost& host = start(world.add_machine("m")).host;
  auto segment = *host.create_segment(5000, "test");
  EXPECT_EQ(segment->size(), 8192u);
  EXPECT_EQ(host.find_segment(segment->data() + 10, 8182), segment.get());
  EXPECT_EQ(host.find_segment(segment->data() + 10, 8183), nullptr);
  auto mapped = *host.map_segment(*segment->handle().duplicate(), 8192);
  segment->data()[7] = std::byte{42};
  EXPECT_EQ(mapped->data()[7], std::byte{42});
  segment.reset();
  EXPECT_EQ(host.find_segment(mapped->data(), 1), nullptr);
}

TEST(SimWorld, WhatLiesAroundASegmentIsNobodys) {
#ifdef __SANITIZE_ADDRESS__
  SimWorld world({});
  SimHost& host = start(world.add_machine("m")).host;
  const auto segment = *host.create_segment(5000, "test");
  volatile std::byte* const bytes = segment->data();
  bytes[0] = std::byte{1};
  bytes[8191] = std::byte{1};
  EXPECT_DEATH(bytes[8192] = std::byte{1}, "AddressSanitizer");
  EXPECT_DEATH(bytes[-1] = std::byte{1}, "AddressSanitizer");
#else
  GTEST_SKIP() << "only the address sanitizer looks";
#endif
}

// --- files and replay

Task<void> file_user(Reactor& reactor, File& file, SimWorld& world, int& rounds) {
  auto segment = *reactor.host().create_segment(1024, "buffer");
  const std::span<std::byte> buffer(segment->data(), 1024);
  IoOp op;
  op.file = &file;
  op.buffer = buffer.data();
  op.length_bytes = buffer.size();
  Signal ended(reactor);
  op.context = &ended;
  op.done = [](IoOp& o, Errc status) {
    EXPECT_EQ(status, Errc::kOk);
    static_cast<Signal*>(o.context)->notify_all();
  };
  for (;;) {
    std::array<std::byte, 8> chance{};
    reactor.host().random(chance);
    op.opcode = static_cast<int>(chance[0]) % 2 == 0 ? IoOpcode::kRead : IoOpcode::kWrite;
    op.offset_bytes = static_cast<uint64_t>(chance[1]) * 512;
    reactor.io().submit(op);
    co_await ended.wait();
    world.note(static_cast<uint64_t>(buffer[0]));
    std::fill(buffer.begin(), buffer.end(), chance[2]);
    ++rounds;
  }
}

uint64_t run_with_files(uint64_t seed) {
  SimWorldOptions options;
  options.seed = seed;
  SimWorld world(options);
  SimMachine& machine = world.add_machine("m");
  machine.add_disk("/d/a", {});
  for (int boot = 0; boot < 2; ++boot) {
    Process process = start(machine, 2);
    std::vector<std::unique_ptr<File>> files;
    int rounds = 0;
    for (size_t i = 0; i < 2; ++i) {
      files.push_back(*process.host.open_beneath("/d", "a", {}));
      process.reactor(i).spawn(file_user(process.reactor(i), *files.back(), world, rounds));
    }
    EXPECT_TRUE(world.run_until([&] { return rounds >= 100; }, kSecond));
    machine.power_loss();
    machine.power_on();
  }
  return world.trace_hash();
}

TEST(SimWorld, OneSeedReplaysBitForBitAndSeedsDiffer) {
  const uint64_t once = run_with_files(7);
  EXPECT_EQ(once, run_with_files(7));
  EXPECT_NE(once, run_with_files(8));
}

TEST(SimWorld, FileOperationsBeyondTheEndOrUnalignedAreRefused) {
  SimWorld world({});
  SimMachine& machine = world.add_machine("m");
  SimDiskOptions small;
  small.size_bytes = 4096;
  machine.add_disk("/d/a", small);
  Process process = start(machine);
  OpenOptions read_only;
  read_only.read_only = true;
  auto file = *process.host.open_beneath("/d", "a", read_only);
  const auto run = [&](IoOpcode opcode, uint64_t offset, uint64_t length, size_t shift) {
    alignas(512) static std::array<std::byte, 8192> buffer;
    std::optional<Errc> result;
    IoOp op;
    op.file = file.get();
    op.opcode = opcode;
    op.offset_bytes = offset;
    op.length_bytes = length;
    op.buffer = buffer.data() + shift;
    op.context = &result;
    op.done = [](IoOp& o, Errc status) { *static_cast<std::optional<Errc>*>(o.context) = status; };
    process.reactor().io().submit(op);
    EXPECT_FALSE(result) << "completion inside submit()";
    EXPECT_TRUE(world.run_until([&] { return result.has_value(); }, kSecond));
    return *result;
  };
  EXPECT_EQ(run(IoOpcode::kRead, 0, 4096, 0), Errc::kOk);
  EXPECT_EQ(run(IoOpcode::kRead, 512, 4096, 0), Errc::kOutOfRange);
  EXPECT_EQ(run(IoOpcode::kRead, 8192, 0, 0), Errc::kOutOfRange);
  EXPECT_EQ(run(IoOpcode::kRead, 1, 512, 0), Errc::kInvalid);
  EXPECT_EQ(run(IoOpcode::kRead, 0, 511, 0), Errc::kInvalid);
  EXPECT_EQ(run(IoOpcode::kRead, 0, 512, 1), Errc::kInvalid);
  EXPECT_EQ(run(IoOpcode::kWrite, 0, 512, 0), Errc::kReadOnly);
  EXPECT_EQ(run(IoOpcode::kFlush, 0, 0, 0), Errc::kOk);
}

/// A completion means all of it, also where the disk moves a part at a time.
TEST(SimWorld, AShortTransferGoesOnUntilAllHasMoved) {
  SimWorld world({});
  SimMachine& machine = world.add_machine("m");
  SimDisk& disk = machine.add_disk("/d/a", {});
  disk.faults.shortens = true;
  Process process = start(machine);
  auto file = *process.host.open_beneath("/d", "a", {});
  alignas(512) std::array<std::byte, 8192> buffer{};
  const auto run = [&](IoOpcode opcode) {
    unsigned ended = 0;
    IoOp op;
    op.file = file.get();
    op.opcode = opcode;
    op.offset_bytes = 4096;
    op.length_bytes = buffer.size();
    op.buffer = buffer.data();
    op.context = &ended;
    op.done = [](IoOp& o, Errc status) {
      EXPECT_EQ(status, Errc::kOk);
      ++*static_cast<unsigned*>(o.context);
    };
    process.reactor().io().submit(op);
    EXPECT_TRUE(world.run_until([&] { return ended != 0; }, kSecond));
    EXPECT_EQ(ended, 1u);
  };
  for (int i = 1; i < 50; ++i) {
    buffer.fill(static_cast<std::byte>(i));
    run(IoOpcode::kWrite);
    buffer.fill(std::byte{0});
    run(IoOpcode::kRead);
    for (const std::byte each : buffer) ASSERT_EQ(each, static_cast<std::byte>(i));
  }
  EXPECT_GT(disk.counters().shortened, 10u);
}

TEST(SimWorld, ADiskThatHangsLeavesPlacesToOthers) {
  SimWorld world({});
  SimMachine& machine = world.add_machine("m");
  SimDisk& hung = machine.add_disk("/d/hung", {});
  machine.add_disk("/d/well", {});
  Process process = start(machine);
  auto hung_file = *process.host.open_beneath("/d", "hung", {});
  auto well_file = *process.host.open_beneath("/d", "well", {});
  hung.faults.stalled_until_ns = world.now_ns() + 10 * kSecond;
  alignas(512) std::array<std::byte, 512> buffer{};
  size_t ended[2] = {};
  std::vector<IoOp> ops(2000);
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool hangs = i < 1500;
    ops[i].file = hangs ? hung_file.get() : well_file.get();
    ops[i].buffer = buffer.data();
    ops[i].length_bytes = buffer.size();
    ops[i].context = &ended[hangs ? 0 : 1];
    ops[i].done = [](IoOp& o, Errc) { ++*static_cast<size_t*>(o.context); };
    process.reactor().io().submit(ops[i]);
  }
  EXPECT_TRUE(world.run_until([&] { return ended[1] == 500; }, kSecond));
  EXPECT_EQ(ended[0], 0u);
  EXPECT_LT(hung.counters().stalled, 200u) << "the others wait outside";
  EXPECT_TRUE(world.run_until([&] { return ended[0] == 1500; }, 20 * kSecond));
}

TEST(SimWorld, ALockIsHeldUntilTheLastWriteOfADeadProcessHasLanded) {
  int late = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SimWorldOptions options;
    options.seed = seed;
    SimWorld world(options);
    SimMachine& machine = world.add_machine("m");
    SimDisk& disk = machine.add_disk("/d/a", {});
    Process first = start(machine);
    OpenOptions locked;
    locked.lock = true;
    auto file = *first.host.open_beneath("/d", "a", locked);
    Process second = start(machine);
    EXPECT_EQ(second.host.open_beneath("/d", "a", locked).code(), Errc::kBusy);
    EXPECT_TRUE(second.host.open_beneath("/d", "a", {}).ok()) << "locks are for those who ask";
    alignas(512) std::array<std::byte, 512> buffer;
    buffer.fill(std::byte{9});
    IoOp op;
    op.file = file.get();
    op.opcode = IoOpcode::kWrite;
    op.buffer = buffer.data();
    op.length_bytes = buffer.size();
    op.done = [](IoOp&, Errc) { FAIL() << "done after death"; };
    first.reactor().io().submit(op);
    world.run_for(9 * kMicrosecond);  // handed over, and not done yet
    first.host.kill();
    file.reset();
    buffer.fill(std::byte{});
    const bool landed = disk.current()[0] == std::byte{9};
    const bool open_now = second.host.open_beneath("/d", "a", locked).ok();
    world.run_for(kSecond);
    EXPECT_TRUE(second.host.open_beneath("/d", "a", locked).ok());
    const bool landed_late = !landed && disk.current()[0] == std::byte{9};
    if (landed_late) {
      ++late;
      EXPECT_FALSE(open_now);
    }
  }
  EXPECT_GT(late, 0);
}

TEST(SimShortage, RefusesWhatIsNewAndKeepsWhatIsThere) {
  SimWorld world({});
  SimMachine& machine = world.add_machine("machine");
  machine.add_disk("/exports/disk", {.size_bytes = 4096});
  SimHost& host = machine.start_process("process");
  const auto segment = *host.create_segment(4096, "what is there");
  host.run_short({.descriptors = true});
  const Result<std::unique_ptr<Segment>> refused = host.create_segment(4096, "more");
  EXPECT_EQ(refused.code(), Errc::kNoMemory);
  EXPECT_EQ(refused.error().message(), "cannot create memory for more: Too many open files");
  EXPECT_EQ(host.create_event(), nullptr);
  EXPECT_EQ(host.open_beneath("/exports", "disk", {}).code(), Errc::kNoMemory);
  EXPECT_TRUE(host.adapter_memory("a queue pair").ok()) << "that takes no descriptor";
  host.run_short({.memory = true});
  EXPECT_EQ(host.adapter_memory("a queue pair").error().message(),
            "no memory for a queue pair: Cannot allocate memory");
  EXPECT_EQ(host.refusals(), 4u);
  EXPECT_EQ(host.find_segment(segment->data(), 4096), segment.get());
  host.enough();
  EXPECT_TRUE(host.create_segment(4096, "more").ok());
  EXPECT_EQ(host.refused().size(), 4u);
}

TEST(SimShortage, RefusesSomeOfTheCallsBySeed) {
  const auto refused = [](uint64_t seed) {
    SimWorld world({});
    SimHost& host = world.add_machine("machine").start_process("process");
    host.run_short({.memory = true, .refused_in = 4, .seed = seed});
    std::vector<bool> all;
    for (int i = 0; i < 400; ++i) all.push_back(!host.adapter_memory("a queue pair").ok());
    return all;
  };
  const std::vector<bool> once = refused(1);
  EXPECT_EQ(once, refused(1));
  EXPECT_NE(once, refused(2));
  EXPECT_NEAR(static_cast<double>(std::count(once.begin(), once.end(), true)), 100, 50);
}

}  // namespace
}  // namespace braid::base::sim
