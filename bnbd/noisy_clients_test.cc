// What one client may cost the others: beside one that floods, breaks the protocol and comes back,
// reads no answers, stands still, holds all its permits, or has a slow disk, an honest client keeps
// 90 % of the throughput that it has alone. Counted in the simulator's time, so it is the same in
// each run; a turn of a reactor costs there what turns cost, however much is done in it.
#include <gtest/gtest.h>

#include <array>
#include <deque>

#include "bnbd/test_rig.h"
#include "trs/raw_peer.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using trs::testing::RawConnection;
using trs::testing::RawPeer;
namespace wire = trs::wire;

constexpr uint32_t kQueueDepth = 16;  // that of test::Rig's server
constexpr uint32_t kChunkBytes = 128 << 10;
constexpr const char* kRawIp = "10.0.2.1";

/// Requests of 4 KiB, one in three a write, so many at a time, for as long as it is not stopped.
class Load {
 public:
  Load(ClientNode& client, RemoteDevice& device, size_t depth) : device_(device) {
    for (size_t i = 0; i < depth; ++i) {
      Slot& slot = slots_.emplace_back();
      slot.load = this;
      slot.memory = std::make_unique<std::byte[]>(kBytes);
      slot.request.length_bytes = kBytes;
      slot.request.buffer.address = slot.memory.get();
      slot.request.context = &slot;
      slot.request.done = &ended;
    }
    client.home().post([this] {
      for (Slot& slot : slots_) next(slot);
    });
  }
  uint64_t done() const { return done_; }
  uint64_t failed() const { return failed_; }
  void stop() { stopped_ = true; }
  bool idle() const { return in_flight_ == 0; }

 private:
  static constexpr uint64_t kBytes = 4096;
  struct Slot {
    BlockRequest request;
    Load* load = nullptr;
    std::unique_ptr<std::byte[]> memory;
  };
  void next(Slot& slot) {
    ++in_flight_;
    slot.request.op = ++begun_ % 3 == 0 ? BlockOp::kWrite : BlockOp::kRead;
    slot.request.offset_bytes = begun_ * 7 % 256 * kBytes;
    device_.submit(slot.request);
  }
  static void ended(BlockRequest& request, Errc status) {
    auto& slot = *static_cast<Slot*>(request.context);
    Load& load = *slot.load;
    --load.in_flight_;
    ++load.done_;
    if (status != Errc::kOk) ++load.failed_;
    if (!load.stopped_) load.next(slot);
  }
  RemoteDevice& device_;
  std::deque<Slot> slots_;
  uint64_t begun_ = 0, done_ = 0, failed_ = 0, in_flight_ = 0;
  bool stopped_ = false;
};

/// A TRS client by hand, as fast as can be: it acts whenever anything at all happens in the world.
class RawClient {
 public:
  explicit RawClient(RawPeer& peer) : peer_(peer) {}

  /// Goes on with its handshake; true while it has a session.
  bool has_session() {
    if (!begun_) begin();
    if (!cid0_->decided) return false;
    if (!cid0_->connection) return again();
    if (!cid1_) {
      cid1_ = peer_.make();
      peer_.connect(*cid1_, bytes_of(request_for(1)));
    }
    if (!cid1_->decided) return false;
    if (!cid1_->connection) return again();
    if (!asked_) ask();
    cid0_->poll();
    if (chunks_.empty()) {
      if (cid0_->completions.size() < 2) return cid0_->lost() ? again() : false;
      std::vector<wire::ChunkRegion> chunks(kQueueDepth);
      auto announced = wire::parse_info_rsp(peer_.received(0, 24), kChunkBytes, chunks);
      EXPECT_TRUE(announced.ok());
      chunks_ = chunks;
      ++sessions;
    }
    return true;
  }
  /// A write of nothing with a header of eight bytes that no message of BNBD has.
  void send_nonsense(uint32_t chunk) {
    const std::array<uint8_t, 12> bytes = {0xff, 0xee, 9, 9, 9, 9, 9, 9, 2, 0, 8, 0};
    send(chunk, bytes, 8);
  }
  /// A message with an immediate that no client sends: the server ends the session.
  void break_protocol() { peer_.write_imm(*cid1_, {}, 0, 0, 0x70000000u); }
  /// Answers that have come by the I/O connection since the last call; makes room for others.
  size_t take_answers() {
    cid1_->poll();
    size_t count = 0;
    for (const vhca::Wc& wc : cid1_->completions) {
      if (wc.status != IBV_WC_SUCCESS) broken_ = true;
      if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) continue;
      ++count;
      receive_again();
    }
    cid1_->completions.clear();
    return count;
  }
  bool lost() { return broken_ || cid0_->lost() || cid1_->lost(); }
  bool again() {
    cid0_.reset();
    cid1_.reset();
    begun_ = asked_ = broken_ = false;
    chunks_.clear();
    return false;
  }
  /// Begins another session and leaves the last one as it is: half open.
  void leave_half_open() {
    if (!begun_) begin();
    if (!cid0_->decided) return;
    half_open_.push_back(std::move(cid0_));
    if (half_open_.size() > 8) half_open_.pop_front();
    ++sessions;
    again();
  }
  uint64_t sessions = 0;

 private:
  static std::vector<std::byte> bytes_of(const wire::ConnReq& request) {
    const auto bytes = wire::bytes_of(request);
    return {bytes.begin(), bytes.end()};
  }
  wire::ConnReq request_for(uint16_t cid) const {
    wire::ConnReq request;
    request.cid = cid;
    request.cid_num = uint16_t{2};
    request.recon_cnt = uint16_t{1};
    request.sess_uuid.bytes.fill(static_cast<uint8_t>(lives_));
    request.paths_uuid.bytes.fill(static_cast<uint8_t>(lives_ >> 8));
    std::memcpy(request.paths_uuid.bytes.data(), &lives_, sizeof(lives_));
    request.flags = wire::kFirstConn;
    request.braid_magic = wire::kBraidMagic;
    request.braid_features = wire::kFeaturePinnedPermits | wire::kFeatureAdminPermits;
    return request;
  }
  void begin() {
    begun_ = true;
    ++lives_;
    cid0_ = peer_.make();
    peer_.connect(*cid0_, bytes_of(request_for(0)));
  }
  void ask() {
    asked_ = true;
    wire::InfoReq request;
    std::memcpy(request.session_name.data(), "raw", 3);
    request.braid_admin_permits = 1;
    peer_.send(*cid0_, wire::bytes_of(request));
  }
  void send(uint32_t chunk, std::span<const uint8_t> bytes, uint32_t imm_offset) {
    peer_.write_imm(*cid1_, std::as_bytes(bytes), chunks_[chunk].address, chunks_[chunk].key,
                    trs::ImmCodec(kQueueDepth).encode({chunk, imm_offset}));
  }
  void receive_again() {
    vhca::RecvWr wr{};
    const vhca::RecvWr* bad = nullptr;
    EXPECT_EQ(cid1_->qp->post_recv(&wr, &bad), 0);
  }
  RawPeer& peer_;
  std::unique_ptr<RawConnection> cid0_, cid1_;
  std::deque<std::unique_ptr<RawConnection>> half_open_;
  std::vector<wire::ChunkRegion> chunks_;
  bool begun_ = false, asked_ = false, broken_ = false;
  uint32_t lives_ = 0;
};

class NoisyClients : public test::Rig {
 protected:
  NoisyClients() {
    other = &server_machine.add_disk("/exports/other.img", {.size_bytes = 4 << 20});
    start_server();
    ClientNode& honest = add_client("honest");
    load.emplace(honest, open(honest), 2);
    run(kWindowNs / 4);  // until it flows
    alone = measure();
    EXPECT_GT(alone, 300u);
  }
  ~NoisyClients() override {
    load->stop();
    EXPECT_TRUE(until([&] { return load->idle(); }));
  }
  RawClient& add_raw() {
    auto& machine = world.add_machine("raw");
    world.fabric().add_port(machine, kRawIp);
    auto& host = machine.start_process("raw");
    auto program = std::make_unique<RawPeer>(host, kRawIp);
    raw_peer = program.get();
    host.run(std::move(program));
    return raw.emplace(*raw_peer);
  }
  /// Lets the time pass; `act` is called whenever anything has happened.
  void run(uint64_t for_ns, const std::function<void()>& act = {}) {
    const uint64_t end_ns = world.now_ns() + for_ns;
    (void)world.run_until(
        [&] {
          if (act) act();
          return world.now_ns() >= end_ns;
        },
        for_ns);
  }
  /// What the honest client gets done in a window.
  uint64_t measure(const std::function<void()>& act = {}) {
    const uint64_t before = load->done();
    run(kWindowNs, act);
    return load->done() - before;
  }
  void expect_its_share(uint64_t beside) {
    EXPECT_GE(beside * 10, alone * 9) << "it did " << alone << " alone";
    EXPECT_EQ(load->failed(), 0u);
    RecordProperty("share_percent", static_cast<int>(beside * 100 / alone));
  }
  bool until_session() {
    return until([&] { return raw->has_session(); });
  }

  static constexpr uint64_t kWindowNs = 20 * base::kMillisecond;
  base::sim::SimDisk* other = nullptr;
  std::optional<Load> load;
  uint64_t alone = 0;
  RawPeer* raw_peer = nullptr;
  std::optional<RawClient> raw;
};

TEST_F(NoisyClients, are_measured_so_that_a_loss_would_be_seen) {
  disk->faults.slow_factor = 2;
  EXPECT_LT(measure() * 10, alone * 9);
}

TEST_F(NoisyClients, who_floods_with_bad_requests_leaves_the_others_their_throughput) {
  RawClient& flood = add_raw();
  ASSERT_TRUE(until_session());
  std::deque<uint32_t> free;
  for (uint32_t chunk = 1; chunk < kQueueDepth; ++chunk) free.push_back(chunk);
  std::deque<uint32_t> busy;
  uint64_t answers = 0;
  const auto act = [&] {
    for (size_t count = flood.take_answers(); count > 0; --count, ++answers) {
      free.push_back(busy.front());  // they are answered in their order
      busy.pop_front();
    }
    for (; !free.empty(); free.pop_front()) {
      flood.send_nonsense(free.front());
      busy.push_back(free.front());
    }
  };
  expect_its_share(measure(act));
  EXPECT_FALSE(flood.lost());
  EXPECT_GT(answers, 2 * alone) << "it was no flood";
  EXPECT_GT(server->statistics().requests_refused, 2 * alone);
}

TEST_F(NoisyClients, who_breaks_the_protocol_and_comes_back_at_once_leaves_them_theirs) {
  RawClient& breaker = add_raw();
  bool broken = false;
  const auto act = [&] {
    if (!broken && breaker.has_session()) {
      breaker.break_protocol();
      broken = true;
    } else if (broken && breaker.lost()) {
      breaker.again();
      broken = false;
    }
  };
  expect_its_share(measure(act));
  EXPECT_GT(breaker.sessions, 5u) << "it did not come back";
}

TEST_F(NoisyClients, who_leaves_sessions_half_open_leaves_them_theirs) {
  RawClient& opener = add_raw();
  expect_its_share(measure([&] { opener.leave_half_open(); }));
  EXPECT_GT(opener.sessions, 20u);
  EXPECT_GT(server->transport_statistics().sessions, 8u);
}

TEST_F(NoisyClients, who_reads_no_answers_leaves_them_theirs) {
  RawClient& stalled = add_raw();
  ASSERT_TRUE(until_session());
  for (uint32_t chunk = 1; chunk < kQueueDepth; ++chunk) stalled.send_nonsense(chunk);
  // It never looks again; in time the server, which hears nothing, cuts it off.
  expect_its_share(measure());
  uint64_t slowest = alone;
  for (int window = 0; window < 60; ++window) slowest = std::min(slowest, measure());
  expect_its_share(slowest);
  EXPECT_EQ(server->sessions().size(), 1u);
}

TEST_F(NoisyClients, who_stands_still_under_load_leaves_them_theirs) {
  ClientNode& stopped = add_client("stopped");
  Load its(stopped, open(stopped, "other.img"), 32);
  run(kWindowNs / 4);
  stopped.host.pause();
  uint64_t slowest = alone;
  for (int window = 0; window < 60; ++window) slowest = std::min(slowest, measure());
  expect_its_share(slowest);
  EXPECT_EQ(server->sessions().size(), 1u) << "it has been cut off";
  its.stop();
  stopped.host.resume();
  EXPECT_TRUE(until([&] { return its.idle(); }));
}

TEST_F(NoisyClients, who_holds_all_its_permits_leaves_them_theirs) {
  ClientNode& holder = add_client("holder");
  RemoteDevice& its_device = open(holder, "other.img");
  other->faults.stalled_until_ns = world.now_ns() + 11 * kWindowNs;
  Load its(holder, its_device, 64);
  uint64_t slowest = alone;
  for (int window = 0; window < 10; ++window) slowest = std::min(slowest, measure());
  EXPECT_EQ(its.done(), 0u);
  EXPECT_GE(its_device.status().in_progress, kQueueDepth - 2) << "it does not hold them";
  expect_its_share(slowest);
  its.stop();
  EXPECT_TRUE(until([&] { return its.idle(); }));
}

TEST_F(NoisyClients, whose_disk_is_slow_leaves_them_theirs) {
  ClientNode& slow = add_client("slow");
  RemoteDevice& its_device = open(slow, "other.img");
  other->faults.slow_factor = 50;
  Load its(slow, its_device, 64);
  expect_its_share(measure());
  EXPECT_GT(its.done(), 10u);
  EXPECT_GT(other->counters().slow, 10u);
  its.stop();
  EXPECT_TRUE(until([&] { return its.idle(); }));
}

}  // namespace
}  // namespace braid::bnbd
