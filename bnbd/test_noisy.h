// For tests of what clients cost each other: a server whose turns take as long as what was done in
// them, an honest client, and others beside it that ask for as much as they may.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/sim_charge.h"
#include "bnbd/test_load.h"
#include "bnbd/test_raw_client.h"

namespace braid::bnbd::test {

using trs::testing::RawPeer;

// What things cost the server's processor, by their order of magnitude: a round trip with both
// sides' work takes 2.1 us (docs/performance.md).
inline constexpr uint64_t kRequestNs = 1000;
inline constexpr uint64_t kOpenNs = 10'000;      // an OPEN or a CLOSE
inline constexpr uint64_t kBytesPerNs = 10;      // memory that is written, cleared or sent
inline constexpr uint64_t kSocketCallNs = 1000;  // receiving or sending at a socket
inline constexpr uint64_t kCallInVainNs = 200;   // ... with nothing there
inline constexpr uint64_t kFrameNs = 100;        // a frame of TCP that asks for nothing
inline constexpr uint64_t kPathNs = 100'000;     // a queue pair and what belongs to it
inline constexpr uint64_t kRefusalNs = 5000;
inline constexpr uint64_t kPollNs = 20;  // looking at a connection, with something there or not
inline constexpr uint64_t kConnectNs = 20'000;  // who connects has work with it, too

inline constexpr uint32_t kQueueDepth = 32;
inline constexpr uint32_t kMaxIoBytes = 1 << 20;
inline constexpr uint64_t kPartBytes = 32 << 10;  // in which the server does what is long
inline constexpr uint64_t kSentBytes = 16 << 10;  // in which it sends it
inline constexpr uint64_t kMemoryBytes = 16 << 20;

/// Of a test for (operation, bytes of a request).
inline std::string size_name(const testing::TestParamInfo<std::tuple<BlockOp, uint32_t>>& info) {
  const char* const op = std::get<0>(info.param) == BlockOp::kRead ? "Read" : "Write";
  return op + std::to_string(std::get<1>(info.param) >> 10) + "KiB";
}

struct Served {
  uint32_t null_devices = 0;
  uint32_t small_memories = 0;
  size_t reactors = 1;
  trs::ChunkGuard guard = trs::ChunkGuard::kNone;
  std::shared_ptr<const trs::KeyRing> keys = nullptr;
  bool tcp = false;
};

class NoisyLoad : public Rig {
 protected:
  explicit NoisyLoad(const Served& served = {}) {
    exports.transport.queue_depth = kQueueDepth;
    exports.transport.max_io_bytes = kMaxIoBytes;
    exports.transport.guard = served.guard;
    exports.transport.keys = served.keys;
    node_devices.tcp = served.tcp;
    // As deep as the session: with the usual one only four requests of a MiB would be under way.
    session_options.copy_pool_bytes = uint64_t{kQueueDepth} * kMaxIoBytes;
    const auto add = [this](NamedExport::Kind kind, const std::string& name, uint64_t bytes) {
      exports.named.push_back({kind, name, bytes});
    };
    for (const char* name : {"memory", "other-memory", "third-memory"})
      add(NamedExport::Kind::kMemory, name, kMemoryBytes);
    for (uint32_t i = 0; i < served.small_memories; ++i)
      add(NamedExport::Kind::kMemory, "small" + std::to_string(i), 4 << 20);
    for (uint32_t i = 0; i < served.null_devices; ++i)
      add(NamedExport::Kind::kNull, "null" + std::to_string(i), 1 << 20);
    start_server(served.reactors);
    base::sim::charge_turns(server_node->home(), [this] { return work_since_last_turn(); });
  }
  ~NoisyLoad() override {
    for (auto& load : loads) load->stop();
    for (auto& load : loads) EXPECT_TRUE(until([&] { return load->idle(); }));
    EXPECT_TRUE(until([&] { return !crowd || crowd->decided(); }));
  }

  uint64_t work_since_last_turn() {
    const ExportServerStatistics s = server->statistics();
    uint64_t work_ns = (s.opened + s.closed + s.opens_refused) * kOpenNs;
    for (const uint64_t requests : s.requests) work_ns += requests * kRequestNs;
    if (crowd) work_ns += crowd->accepted * kPathNs;
    work_ns += server->transport_statistics().connects_refused * kRefusalNs;
    for (const ExportStatus& each : server->exports()) {
      if (each.kind != "memory") continue;
      work_ns += (each.statistics.write_bytes + cleared_bytes(each)) / kBytesPerNs;
    }
    work_ns += (sent_bytes() + copied_bytes() + server_host->stream_bytes()) / kBytesPerNs;
    work_ns += server_host->stream_calls() * kSocketCallNs;
    work_ns += server_host->stream_calls_in_vain() * kCallInVainNs;
    work_ns += server->transport_statistics().polls * kPollNs;
    if (frames_sent) work_ns += frames_sent() * kFrameNs;
    const uint64_t before_ns = worked_ns;
    worked_ns = std::max(worked_ns, work_ns);
    return worked_ns - before_ns;
  }
  uint64_t of_connections(uint64_t trs::ServedStatistics::*counter) const {
    uint64_t sum = 0;
    for (const trs::ServerSession* session : server->sessions()) {
      for (const auto& path : session->path_statistics())
        for (const trs::ServedStatistics& connection : path) sum += connection.*counter;
    }
    return sum;
  }
  /// Of reads, in parts as they are sent.
  uint64_t sent_bytes() const { return of_connections(&trs::ServedStatistics::read_bytes); }
  /// Of writes, by a chunk guard.
  uint64_t copied_bytes() const { return of_connections(&trs::ServedStatistics::copied_bytes); }
  /// By requests of a mebibyte of one client: its own counters count requests, the backend's those
  /// that it was asked for, which may be parts.
  static uint64_t cleared_bytes(const ExportStatus& memory) {
    const auto clears = [](const BlockStatistics& s) { return s.write_zeroes + s.discards; };
    uint64_t requests = 0;
    for (const HolderStatus& holder : memory.holders) requests += clears(holder.statistics);
    const uint64_t asked = clears(memory.statistics);
    constexpr uint64_t kParts = kMaxIoBytes / kPartBytes;
    const uint64_t in_parts = std::min(asked, requests * kParts);
    const uint64_t whole = (requests * kParts - in_parts + kParts - 2) / (kParts - 1);
    return whole * kMaxIoBytes + (asked - std::min(asked, whole)) * kPartBytes;
  }
  /// A client that asks for as much as it may; it has a device of its own.
  Load& add_load(const std::string& client, const std::string& name, const LoadShape& shape) {
    ClientNode& node = add_client(client);
    return *loads.emplace_back(std::make_unique<Load>(node, open(node, name), shape));
  }
  /// One client's: so many sessions, each with a device of its own, of Served::small_memories.
  void add_sessions(uint32_t count, const LoadShape& shape) {
    ClientNode& client = add_client("several");
    for (uint32_t i = 0; i < count; ++i) {
      const std::string number = std::to_string(i);
      RemoteSession& session = i == 0 ? *client.session : add_session(client, "several" + number);
      RemoteDeviceOptions device;
      device.name = "small" + number;
      auto opened = try_open(client, std::move(device), &session);
      ASSERT_TRUE(opened.ok()) << opened.error().message();
      loads.push_back(std::make_unique<Load>(client, **opened, shape));
    }
  }
  /// What an honest client gets done in a window with the others, which act on each event.
  uint64_t measure(const Load& load, const std::function<void()>& act = {}) {
    run(window_ns / 4, act);  // until it flows
    const uint64_t before = load.done();
    run(window_ns, act);
    return load.done() - before;
  }
  void run(uint64_t for_ns, const std::function<void()>& act) { run_acting(world, for_ns, act); }
  /// An honest client with two requests at a time on a file of its own, and what it does alone.
  void begin_honest(uint64_t done_at_least = 150) {
    honest = &add_load("honest", "disk.img", {});
    alone = measure(*honest);
    EXPECT_GT(alone, done_at_least);
  }
  void expect_its_share(const std::function<void()>& act = {}) {
    const uint64_t beside = measure(*honest, act);
    EXPECT_GE(beside * 10, alone * 9) << "it did " << alone << " alone";
    EXPECT_EQ(honest->failed(), 0u);
    RecordProperty("share_percent", static_cast<int>(beside * 100 / alone));
  }
  void expect_half_each(const Load& its, const Load& others) {
    run(kWindowNs / 4, {});
    const uint64_t its_before = its.done(), others_before = others.done();
    run(kWindowNs, {});
    const uint64_t done = its.done() - its_before;
    EXPECT_GE(done * 100, (others.done() - others_before + done) * 45);
  }
  /// How much of the window the server's processor was busy.
  uint64_t busy_percent(const std::function<void()>& body) {
    const uint64_t work_before = worked_ns, began_ns = world.now_ns();
    body();
    return (worked_ns - work_before) * 100 / (world.now_ns() - began_ns);
  }
  void expect_its_share_of_a_busy_server(const std::function<void()>& act = {}) {
    const uint64_t busy = busy_percent([&] { expect_its_share(act); });
    EXPECT_GE(busy, 50u) << "it was no flood";
  }
  RawPeer& add_peer() {
    auto& machine = world.add_machine("raw");
    world.fabric().add_port(machine, "10.0.2.1");
    auto& host = machine.start_process("raw");
    const trs::testing::ProcessSize size = {.tcp = node_devices.tcp};
    auto program = std::make_unique<RawPeer>(host, "10.0.2.1", size);
    RawPeer& peer = *program;
    host.run(std::move(program));
    return peer;
  }
  RawClient& add_raw(RawClient::Kind kind = RawClient::Kind::kBraid) {
    raw = std::make_unique<RawClient>(add_peer(), kQueueDepth, 2 * kMaxIoBytes, kind);
    EXPECT_TRUE(until([&] { return raw->has_session(); }));
    return *raw;
  }

  static constexpr uint64_t kWindowNs = 10 * base::kMillisecond;
  uint64_t window_ns = kWindowNs;
  uint64_t worked_ns = 0;
  std::vector<std::unique_ptr<Load>> loads;
  Load* honest = nullptr;
  uint64_t alone = 0;
  std::unique_ptr<RawClient> raw;
  std::unique_ptr<RawCrowd> crowd;
  uint64_t connects_charged = 0;
  uint64_t names_asked = 0;
  std::function<uint64_t()> frames_sent;  // by who sends no requests
};

}  // namespace braid::bnbd::test
