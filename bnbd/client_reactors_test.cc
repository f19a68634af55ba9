// A client of several reactors: I/O on each of them, and everything that ends, holds or brings back
// a device while all of them have requests of it (docs/client-reactors.md).
#include <gtest/gtest.h>

#include <deque>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using base::kMillisecond;
using base::kSecond;
using test::ClientNode;
using test::Io;
using test::kServerIp;
using wire::AccessMode;

constexpr uint64_t kBytes = 4096;

/// With as many reactors as the parameter says.
class ClientReactors : public test::ServedRig, public ::testing::WithParamInterface<size_t> {
 protected:
  ClientReactors() {
    session_options.transport.reconnect.delay_max_ns = kSecond;
    client_reactors = reactors();
    client = &add_client();
  }
  static size_t reactors() { return GetParam(); }
  bool reaches(const RemoteDevice& device, RemoteState state) {
    return until([&] { return device.state() == state; });
  }
  RemoteDevice& open_with(RemoteDeviceOptions options) {
    auto opened = try_open(*client, std::move(options));
    EXPECT_TRUE(opened.ok()) << opened.error().message();
    return *opened.value();
  }
  /// One for each reactor, at places of their own.
  void submit_on_all(RemoteDevice& device, std::deque<Io>& ios, BlockOp op, int value) {
    for (size_t i = 0; i < reactors(); ++i) {
      ios.emplace_back(op, i * kBytes, op == BlockOp::kFlush ? 0 : kBytes, value);
      submit_on(i, device, ios.back());
    }
  }
  void expect_all(std::deque<Io>& ios, Errc status) {
    for (Io& io : ios) {
      EXPECT_EQ(wait(io), status);
      EXPECT_EQ(io.completions, 1);
    }
  }
  void expect_held(const std::deque<Io>& ios) {
    world.run_for(5 * kSecond);
    for (const Io& io : ios) EXPECT_FALSE(io.status.has_value());
  }
  void expect_nothing_left() {
    const trs::ClientStatistics all = client->session->statistics();
    EXPECT_EQ(all.in_flight + all.held, 0u);
    EXPECT_EQ(all.permits, all.permits_free);
    EXPECT_EQ(all.permits,
              client->session->limits().queue_depth - client->session->limits().admin_permits);
  }
  base::Result<ForceClosed> force_close(const std::string& name) {
    auto closed = std::make_shared<std::optional<base::Result<ForceClosed>>>();
    server_node->home().post([this, name, closed] {
      closed->emplace(server->force_close({name, ""}));
    });
    EXPECT_TRUE(until([&] { return closed->has_value(); }));
    return **closed;
  }
  ClientNode* client = nullptr;
};

TEST_P(ClientReactors, each_of_them_writes_and_reads) {
  RemoteDevice& device = open(*client, "ram");
  std::deque<Io> writes, reads;
  submit_on_all(device, writes, BlockOp::kWrite, 7);
  expect_all(writes, Errc::kOk);
  submit_on_all(device, reads, BlockOp::kRead, 0x55);
  expect_all(reads, Errc::kOk);
  for (const Io& io : reads) EXPECT_TRUE(io.all(7));
  const RemoteDeviceStatus status = device.status();
  EXPECT_EQ(status.requests_by_reactor, std::vector<uint64_t>(reactors(), 2));
  EXPECT_EQ(status.statistics.writes, reactors());
  EXPECT_EQ(status.statistics.read_bytes, reactors() * kBytes);
  EXPECT_EQ(device.latency(LatencyKind::kRead).count(), reactors());
  for (const trs::ClientStatistics& one : client->session->statistics_by_reactor()) {
    EXPECT_EQ(one.writes, 1u) << "by its own connection";
  }
  expect_nothing_left();
}

TEST_P(ClientReactors, requests_are_checked_on_each) {
  RemoteDevice& device = open(*client, "disk.img", AccessMode::kReadOnly);
  for (size_t i = 0; i < reactors(); ++i) {
    EXPECT_EQ(run_on(i, device, Io(BlockOp::kWrite, 0, kBytes)), Errc::kReadOnly);
    EXPECT_EQ(run_on(i, device, Io(BlockOp::kRead, 4 << 20, kBytes)), Errc::kOutOfRange);
  }
}

TEST_P(ClientReactors, a_flush_covers_what_was_done_on_every_reactor) {
  RemoteDevice& device = open(*client);
  for (size_t writer = 0; writer < reactors(); ++writer) {
    const size_t flusher = (writer + 1) % reactors();
    ASSERT_EQ(run_on(writer, device, Io(BlockOp::kWrite, 0, kBytes, 1)), Errc::kOk);
    ASSERT_EQ(run_on(flusher, device, Io(BlockOp::kFlush)), Errc::kOk);
    restart_machine();
    ASSERT_TRUE(until([&] { return device.status().reopened == writer + 1; }));
    EXPECT_EQ(run_on(writer, device, Io(BlockOp::kFlush)), Errc::kOk) << "nothing was lost";
  }
  EXPECT_EQ(device.status().losses, 0u);
}

TEST_P(ClientReactors, a_loss_is_told_once_on_whichever_reactor_asks_first) {
  RemoteDevice& device = open(*client);
  for (size_t writer = 0; writer < reactors(); ++writer) {
    const size_t flusher = (writer + 1) % reactors();
    ASSERT_EQ(run_on(writer, device, Io(BlockOp::kWrite, 0, kBytes, 1)), Errc::kOk);
    restart_machine();
    EXPECT_EQ(run_on(flusher, device, Io(BlockOp::kFlush)), Errc::kIo);
    for (size_t i = 0; i < reactors(); ++i) {
      EXPECT_EQ(run_on(i, device, Io(BlockOp::kFlush)), Errc::kOk);
    }
  }
  EXPECT_EQ(device.status().losses, reactors());
  EXPECT_EQ(device.status().flushes_failed, reactors());
}

TEST_P(ClientReactors, a_server_killed_under_load_loses_no_request_and_no_data) {
  RemoteDevice& device = open(*client);
  constexpr uint64_t kCount = 200;
  for (int round = 0; round < 5; ++round) {
    std::deque<Io> ios;
    for (uint64_t i = 0; i < kCount; ++i) {
      ios.emplace_back(BlockOp::kWrite, i * 2 * kBytes, 2 * kBytes,
                       round * 40 + static_cast<int>(i % 40));
      submit_on(i % reactors(), device, ios.back());
    }
    world.run_for(kMillisecond);
    kill_server();
    start_server();
    expect_all(ios, Errc::kOk);
    for (uint64_t i = 0; i < kCount; i += 3) {
      Io read(BlockOp::kRead, i * 2 * kBytes, 2 * kBytes);
      ASSERT_EQ(run_on((i + 1) % reactors(), device, read), Errc::kOk);
      EXPECT_TRUE(read.all(round * 40 + static_cast<int>(i % 40)));
    }
    EXPECT_EQ(run_on(0, device, Io(BlockOp::kFlush)), Errc::kOk)
        << "a killed process loses nothing";
  }
  EXPECT_EQ(device.status().losses, 0u);
  EXPECT_EQ(device.status().reopened, 5u);
  expect_nothing_left();
}

/// What is submitted in each turn of a reconnect goes to the device as it is opened then: another
/// device has taken the id that it had before.
TEST_P(ClientReactors, nothing_goes_out_under_an_id_of_the_path_before) {
  RemoteDevice& first = open(*client, "ram");
  RemoteDevice& device = open(*client);
  ASSERT_EQ(run_on(0, device, Io(BlockOp::kWrite, 0, 16 * kBytes, 1)), Errc::kOk);
  await(*client, first.close());  // opened alone, the device is the server's first
  for (int round = 0; round < 3; ++round) {
    kill_server();
    start_server();
    std::deque<Io> ios;
    const uint64_t began_ns = world.now_ns();
    for (int i = 0; world.now_ns() < began_ns + kSecond; ++i) {
      const size_t reactor = static_cast<size_t>(i) % reactors();
      ios.emplace_back(BlockOp::kWrite, static_cast<uint64_t>(i) % 1024 * kBytes, kBytes, round);
      submit_on(reactor, device, ios.back());
      world.run_for(kMillisecond / 4 + static_cast<uint64_t>(i) * 977 % kMillisecond);
    }
    expect_all(ios, Errc::kOk);
    EXPECT_EQ(device.state(), RemoteState::kOpen);
  }
  expect_nothing_left();
}

TEST_P(ClientReactors, giving_up_ends_what_every_reactor_holds_until_it_is_back) {
  RemoteDevice& device = open_with({.name = "disk.img", .give_up_after_ns = 3 * kSecond});
  std::deque<Io> on_wire, held, late, back;
  submit_on_all(device, on_wire, BlockOp::kWrite, 1);
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  submit_on_all(device, held, BlockOp::kWrite, 2);
  expect_all(on_wire, Errc::kTimedOut);
  expect_all(held, Errc::kTimedOut);
  submit_on_all(device, late, BlockOp::kRead, 0);
  expect_all(late, Errc::kTimedOut);
  start_server();
  ASSERT_TRUE(reaches(device, RemoteState::kOpen));
  submit_on_all(device, back, BlockOp::kRead, 0);
  expect_all(back, Errc::kOk);
  expect_nothing_left();
}

TEST_P(ClientReactors, a_lost_session_ends_what_every_reactor_has) {
  RemoteDevice& device = open_with({.name = "disk.img", .lost_after_ns = 3 * kSecond});
  std::deque<Io> on_wire, held, late;
  submit_on_all(device, on_wire, BlockOp::kWrite, 1);
  kill_server();
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  submit_on_all(device, held, BlockOp::kWrite, 2);
  expect_all(on_wire, Errc::kDisconnected);
  expect_all(held, Errc::kDisconnected);
  EXPECT_EQ(device.state(), RemoteState::kLost);
  submit_on_all(device, late, BlockOp::kWrite, 3);
  expect_all(late, Errc::kDisconnected);
  await(*client, device.close());
}

TEST_P(ClientReactors, another_writer_ends_what_every_reactor_has) {
  RemoteDevice& device = open(*client);
  world.fabric().set_port_up("10.0.1.1", false);
  ASSERT_TRUE(reaches(device, RemoteState::kPathDown));
  std::deque<Io> held, late;
  submit_on_all(device, held, BlockOp::kWrite, 1);
  ASSERT_TRUE(until([this] { return server->sessions().empty(); }));  // it holds the device no more
  ClientNode& other = add_client("other");
  RemoteDevice& others = open(other);
  ASSERT_EQ(write(other, others, 0, reactors() * kBytes, 2), Errc::kOk);
  world.fabric().set_port_up("10.0.1.1", true);
  expect_all(held, Errc::kIo);
  EXPECT_EQ(device.state(), RemoteState::kSuperseded);
  submit_on_all(device, late, BlockOp::kRead, 0);
  expect_all(late, Errc::kIo);
  EXPECT_TRUE(reads_as(other, others, 0, reactors() * kBytes, 2));
}

TEST_P(ClientReactors, what_an_operator_takes_away_under_load_waits_on_every_reactor) {
  RemoteDevice& device = open(*client);
  std::deque<Io> ios, held;
  for (uint64_t i = 0; i < 200; ++i) {
    ios.emplace_back(BlockOp::kWrite, i * kBytes, kBytes, 3);
    submit_on(i % reactors(), device, ios.back());
  }
  world.run_for(100 * base::kMicrosecond);
  ASSERT_EQ(force_close("disk.img")->devices, 1u);
  ASSERT_TRUE(reaches(device, RemoteState::kRevoked));
  submit_on_all(device, held, BlockOp::kRead, 0);
  expect_held(held);
  ASSERT_TRUE(await(*client, device.remap()).ok());
  expect_all(ios, Errc::kOk);
  expect_all(held, Errc::kOk);
  for (uint64_t i = 0; i < 200; i += 7) {
    EXPECT_TRUE(reads_as(*client, device, i * kBytes, kBytes, 3));
  }
}

TEST_P(ClientReactors, another_disk_under_the_name_holds_io_until_the_device_is_closed) {
  RemoteDevice& device = open(*client, "ram");
  kill_server();
  start_server();  // with other memory
  ASSERT_TRUE(reaches(device, RemoteState::kReplaced));
  std::deque<Io> held;
  submit_on_all(device, held, BlockOp::kWrite, 1);
  expect_held(held);
  await(*client, device.close());
  expect_all(held, Errc::kCanceled);
  std::deque<Io> late;
  submit_on_all(device, late, BlockOp::kRead, 0);
  expect_all(late, Errc::kCanceled);
}

TEST_P(ClientReactors, closing_waits_for_what_is_on_the_wire_of_each) {
  RemoteDevice& device = open(*client);
  disk->faults.stalled_until_ns = world.now_ns() + 5 * kSecond;
  std::deque<Io> ios;
  submit_on_all(device, ios, BlockOp::kWrite, 1);
  world.run_for(100 * kMillisecond);
  await(*client, device.close());
  EXPECT_GE(world.now_ns(), 5 * kSecond);
  for (const Io& io : ios) EXPECT_EQ(io.status, Errc::kOk);
}

TEST_P(ClientReactors, closing_takes_back_with_the_path_what_a_hung_disk_does_not_answer) {
  session_options.close_patience_ns = 3 * kSecond;
  client = &add_client("impatient");
  RemoteDevice& device = open(*client);
  disk->faults.stalled_until_ns = world.now_ns() + 20 * kSecond;
  std::deque<Io> ios;
  submit_on_all(device, ios, BlockOp::kWrite, 1);
  world.run_for(100 * kMillisecond);
  const uint64_t began_ns = world.now_ns();
  await(*client, device.close());
  EXPECT_LT(world.now_ns() - began_ns, 6 * kSecond);
  expect_all(ios, Errc::kCanceled);
}

TEST_P(ClientReactors, each_learns_of_another_size) {
  RemoteDevice& device = open(*client);
  EXPECT_EQ(run_on(1, device, Io(BlockOp::kRead, 4 << 20, kBytes)), Errc::kOutOfRange);
  ASSERT_TRUE(await(*server_node, server->resize("disk.img", 8 << 20, false)).ok());
  ASSERT_TRUE(until([&] { return device.info().size_bytes == 8 << 20; }));
  world.run_for(kMillisecond);
  for (size_t i = 0; i < reactors(); ++i) {
    EXPECT_EQ(run_on(i, device, Io(BlockOp::kRead, 4 << 20, kBytes)), Errc::kOk);
    EXPECT_EQ(device.queues()[i].device->info().size_bytes, 8u << 20);
  }
}

TEST_P(ClientReactors, a_client_killed_in_the_midst_leaves_nothing_behind) {
  RemoteDevice& device = open(*client);
  std::deque<Io> ios;
  for (uint64_t i = 0; i < 100; ++i) {
    ios.emplace_back(BlockOp::kWrite, i * kBytes, kBytes, 3);
    submit_on(i % reactors(), device, ios.back());
  }
  world.run_for(200 * base::kMicrosecond);
  client->host.kill();
  ClientNode& other = add_client("other");
  ASSERT_TRUE(until([&] { return server->sessions().size() == 1; }));
  EXPECT_EQ(write(other, open(other), 0, kBytes, 1), Errc::kOk);
}

TEST_P(ClientReactors, one_that_hangs_over_a_reconnect_delays_it_and_loses_nothing) {
  RemoteDevice& device = open(*client);
  base::Reactor& last = *client->reactors.back();
  std::deque<Io> ios;
  submit_on_all(device, ios, BlockOp::kWrite, 1);
  client->host.hang(last);
  kill_server();
  start_server();
  world.run_for(5 * kSecond);
  EXPECT_EQ(device.state(), RemoteState::kPathDown);
  client->host.unhang(last);
  expect_all(ios, Errc::kOk);
  EXPECT_EQ(device.state(), RemoteState::kOpen);
}

/// Somebody who always has `depth` reads to do on one reactor, into memory that is registered:
/// copy buffers are not lent.
class ReactorLoad {
 public:
  ReactorLoad(const BlockQueue& queue, size_t depth)
      : queue_(queue), region_(std::move(queue.device->create_region(depth * kBytes)).value()) {
    for (size_t i = 0; i < depth; ++i) {
      ios_.emplace_back(BlockOp::kRead, i % 64 * kBytes, kBytes);
      ios_.back().request.buffer = {region_.get(), region_->data() + i * kBytes};
      ios_.back().request.context = this;
      ios_.back().request.done = [](BlockRequest& request, Errc status) {
        static_cast<ReactorLoad*>(request.context)->ended(request, status);
      };
    }
    queue_.reactor->post([this] {
      for (Io& io : ios_) queue_.device->submit(io.request);
    });
  }
  void stop() { stopped_ = true; }
  bool idle() const { return idle_ == ios_.size(); }
  uint64_t completed = 0;
  uint64_t failed = 0;

 private:
  void ended(BlockRequest& request, Errc status) {
    ++completed;
    if (status != Errc::kOk) ++failed;
    if (stopped_) {
      ++idle_;
    } else {
      queue_.device->submit(request);
    }
  }
  const BlockQueue queue_;
  const std::unique_ptr<Region> region_;
  std::deque<Io> ios_;
  size_t idle_ = 0;
  bool stopped_ = false;
};

/// Devices "m0", "m1" ... that take no time, behind a wire that takes some.
class SharedReactors : public ClientReactors {
 protected:
  static constexpr uint32_t kPermits = 64;
  SharedReactors() {
    kill_server();
    exports.transport.queue_depth = kPermits + 2;
    exports.named.clear();
    for (int i = 0; i < 8; ++i) {
      exports.named.push_back({NamedExport::Kind::kMemory, "m" + std::to_string(i), 1 << 20});
    }
    start_server();
    client = &add_client("sharing");
    const std::string ip = "10.0.1." + std::to_string(clients);
    world.fabric().set_extra_delay(ip, kServerIp, 2 * kMillisecond);
    world.fabric().set_extra_delay(kServerIp, ip, 2 * kMillisecond);
  }
  RemoteDevice& open_next() { return open(*client, "m" + std::to_string(client->devices.size())); }
  ReactorLoad& add_load(RemoteDevice& device, size_t reactor, size_t depth = kPermits) {
    loads_.push_back(std::make_unique<ReactorLoad>(device.queues().at(reactor), depth));
    return *loads_.back();
  }
  void end_loads() {
    for (auto& load : loads_) load->stop();
    ASSERT_TRUE(until([&] {
      return std::all_of(loads_.begin(), loads_.end(), [](auto& load) { return load->idle(); });
    }));
    for (auto& load : loads_) EXPECT_EQ(load->failed, 0u);
    expect_nothing_left();
    loads_.clear();  // their memory goes before the session
  }
  std::vector<std::unique_ptr<ReactorLoad>> loads_;
};

TEST_P(SharedReactors, a_device_alone_on_one_gets_nearly_all_permits) {
  add_load(open_next(), reactors() - 1, 2 * kPermits);
  const uint32_t others = kPermits - kPermits / static_cast<uint32_t>(reactors());
  // Of its own share each other one keeps an eighth, and one in case the device asks there.
  const auto kept = static_cast<uint32_t>(others / 8 + reactors() - 1);
  ASSERT_TRUE(until(
      [&] { return client->session->statistics_by_reactor().back().permits >= kPermits - kept; }));
  end_loads();
}

/// Five devices on the first reactor, one on each other.
TEST_P(SharedReactors, each_device_gets_the_same_wherever_it_is) {
  for (int i = 0; i < 5; ++i) add_load(open_next(), 0);
  for (size_t i = 1; i < reactors(); ++i) add_load(open_next(), i);
  world.run_for(200 * kMillisecond);  // until it has settled
  std::vector<uint64_t> before;
  for (auto& load : loads_) before.push_back(load->completed);
  world.run_for(kSecond);
  uint64_t least = UINT64_MAX, most = 0;
  for (size_t i = 0; i < loads_.size(); ++i) {
    const uint64_t got = loads_[i]->completed - before[i];
    least = std::min(least, got);
    most = std::max(most, got);
  }
  EXPECT_GT(least * 10, most * 8) << "least " << least << ", most " << most;
  end_loads();
}

/// One device's disk hangs, and has all the permits that it can get, on every reactor.
TEST_P(SharedReactors, who_gives_nothing_back_leaves_one_to_each_other_device) {
  RemoteDevice& hung = open(*client);
  disk->faults.stalled_until_ns = world.now_ns() + 40 * kSecond;
  std::vector<RemoteDevice*> others{&open_next(), &open_next()};
  for (size_t i = 0; i < reactors(); ++i) add_load(hung, i, 2 * kPermits);
  world.run_for(kSecond);
  for (size_t i = 0; i < reactors(); ++i) {
    for (RemoteDevice* device : others) {
      const uint64_t began_ns = world.now_ns();
      ASSERT_EQ(run_on(i, *device, Io(BlockOp::kRead, 0, kBytes)), Errc::kOk);
      EXPECT_LT(world.now_ns() - began_ns, 10 * kMillisecond);
    }
  }
  // And under load: what comes back is not lent away from those who have nothing else.
  for (size_t i = 0; i < reactors(); ++i) {
    for (RemoteDevice* device : others) add_load(*device, i, 4);
  }
  world.run_for(kSecond);
  for (size_t i = reactors(); i < loads_.size(); ++i) {
    EXPECT_GT(loads_[i]->completed, 100u) << "load " << i;
  }
  EXPECT_EQ(loads_[0]->completed, 0u);
  disk->faults.stalled_until_ns = 0;
  world.run_for(40 * kSecond);
  end_loads();
}

const auto kCountName = [](const auto& info) { return std::to_string(info.param); };
INSTANTIATE_TEST_SUITE_P(R, ClientReactors, ::testing::Values(2, 4), kCountName);
INSTANTIATE_TEST_SUITE_P(R, SharedReactors, ::testing::Values(2, 4), kCountName);

}  // namespace
}  // namespace braid::bnbd
