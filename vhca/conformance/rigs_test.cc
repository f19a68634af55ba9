// The devices that the conformance suite runs on.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <list>

#include "base/linux_host.h"
#include "base/linux_test_network.h"
#include "base/log.h"
#include "base/sim.h"
#include "vhca/conformance/rig.h"
#include "vhca/conformance/rxe_limits.h"
#include "vhca/ibv_device.h"
#include "vhca/soft/silent_link_test.h"
#include "vhca/soft_device.h"

namespace braid::vhca::conformance {
namespace {

/// The software HCA gives no link to QPs whose programs exchange numbers.
bool give_silent_link(Qp& qp) {
  dynamic_cast<soft::SoftQp&>(qp).give_link(std::make_unique<soft::SilentLink>());
  return true;
}

/// Two machines of a simulated world, one process on each.
class SimRig final : public Rig {
 public:
  /// `tcp`: the TCP wire over simulated streams.
  explicit SimRig(bool tcp = false) : tcp_(tcp) {
    for (int side = 0; side < 2; ++side) {
      machines_[side] = &world_.add_machine(side == kClient ? "client" : "server");
      world_.fabric().add_port(*machines_[side], side == kClient ? kClientIp : kServerIp);
      processes_[side] = &machines_[side]->start_process("p");
      reactors_[side] = std::move(*base::Reactor::create(*processes_[side], {}));
      processes_[side]->drive(*reactors_[side]);
      devices_[side] = std::move(
          tcp ? *create_tcp_device(*processes_[side], *reactors_[side], {.port_faults = true})
              : *create_sim_device(*processes_[side], *reactors_[side], {}));
    }
  }

  Device& device(int side) override { return *devices_[side]; }
  base::Reactor& reactor(int side) override { return *reactors_[side]; }
  Address server_address() override { return {.ip = kServerIp, .port = next_port_++}; }
  bool run_until(const std::function<bool()>& done) override {
    // `done` polls as an owner that is awake does: time must not jump over it.
    polling_ = true;
    if (!ticking_) tick();
    const bool came = world_.run_until(done, 20 * base::kSecond);
    polling_ = false;
    return came;
  }
  void settle() override { world_.run_for(50 * base::kMillisecond); }
  uint64_t now_ns() override { return world_.now_ns(); }
  std::span<std::byte> allocate(int side, size_t bytes) override {
    segments_.push_back(std::move(*processes_[side]->create_segment(bytes, "test")));
    return {segments_.back()->data(), bytes};
  }
  bool prepare_for_rtr(Qp& qp) override { return give_silent_link(qp); }
  bool kill_server() override {
    processes_[kServer]->kill();
    return true;
  }
  bool set_faults(int side, const PortFaults& faults) override {
    if (tcp_) return Rig::set_faults(side, faults);
    const std::string here = side == kClient ? kClientIp : kServerIp;
    const std::string there = side == kClient ? kServerIp : kClientIp;
    base::sim::SimFabric& fabric = world_.fabric();
    fabric.set_port_up(here, !faults.down);
    fabric.set_black_hole(here, there, faults.lose_sent);
    fabric.set_black_hole(there, here, faults.lose_received);
    delay_ns_[side] = faults.delay_ns;
    hold_messages(side, ++delays_[side]);
    // What is sent again because its answer was lost comes twice.
    fabric.set_lose_answers(there, here, faults.lose_answers || faults.duplicate);
    if (faults.duplicate) {
      world_.after(kDuplicateNs,
                   [&fabric, here, there] { fabric.set_lose_answers(there, here, false); });
    }
    return true;
  }
  PortFaultCounts fault_counts(int side) override {
    if (tcp_) return Rig::fault_counts(side);
    const base::sim::FabricFaults& counts = world_.fabric().faults();
    return {.lost = counts.port_down + counts.black_hole_one_way + counts.black_hole_both,
            .answers_lost = counts.lost_answer,
            .delayed = counts.held,
            .duplicated = counts.lost_answer};
  }

 private:
  static constexpr const char* kClientIp = "10.0.0.1";
  static constexpr const char* kServerIp = "10.0.0.2";
  static constexpr uint64_t kDuplicateNs = 5 * base::kMillisecond;
  static constexpr uint64_t kDelayStepNs = 20 * base::kMicrosecond;
  /// What is sent from now on arrives so much later, by up to a step more: the network holds until
  /// an instant, which moves along. Until the side's delay is set again.
  void hold_messages(int side, int delay) {
    if (delay != delays_[side]) return;
    const bool holds = delay_ns_[side] != 0;
    world_.fabric().set_held_until(side == kClient ? kClientIp : kServerIp,
                                   side == kClient ? kServerIp : kClientIp,
                                   holds ? now_ns() + delay_ns_[side] + kDelayStepNs : 0);
    if (holds) world_.after(kDelayStepNs, [this, side, delay] { hold_messages(side, delay); });
  }
  void tick() {
    ticking_ = polling_;
    if (ticking_) world_.after(20 * base::kMicrosecond, [this] { tick(); });
  }

  const bool tcp_;
  base::sim::SimWorld world_{{}};
  bool polling_ = false;
  bool ticking_ = false;
  uint64_t delay_ns_[2] = {};
  int delays_[2] = {};  // how often set; the last one holds
  uint16_t next_port_ = 1000;
  base::sim::SimMachine* machines_[2] = {};
  base::sim::SimHost* processes_[2] = {};
  std::unique_ptr<base::Reactor> reactors_[2];
  std::unique_ptr<Device> devices_[2];
  std::vector<std::unique_ptr<base::Segment>> segments_;
};

/// Two devices of one real process, each with a reactor, turned by the test's thread.
class ProcessRig : public Rig {
 public:
  Device& device(int side) override {
    enter(side);
    return *devices_[side];
  }
  base::Reactor& reactor(int side) override { return *reactors_[side]; }
  Address server_address() override { return {.ip = server_ip_, .port = free_port()}; }
  bool run_until(const std::function<bool()>& done) override {
    const uint64_t deadline_ns = host_->now_ns() + 60 * base::kSecond;
    while (!done()) {
      if (host_->now_ns() > deadline_ns) return false;
      turn();
    }
    return true;
  }
  /// It is over early when nothing has moved for a while.
  void settle() override {
    const uint64_t until_ns = host_->now_ns() + settle_ns_;
    uint64_t idle_since_ns = host_->now_ns();
    int idle_turns = 0;
    for (uint64_t now_ns = idle_since_ns; now_ns < until_ns; now_ns = host_->now_ns()) {
      if (turn()) {
        idle_since_ns = host_->now_ns();
        idle_turns = 0;
      } else if (++idle_turns >= kIdleTurns && now_ns - idle_since_ns >= idle_ns_) {
        return;
      }
    }
  }
  uint64_t now_ns() override { return host_->now_ns(); }
  bool prepare_for_rtr(Qp& qp) override { return give_silent_link(qp); }
  std::span<std::byte> allocate(int, size_t bytes) override {
    segments_.push_back(std::move(*host_->create_segment(bytes, "test")));
    return {segments_.back()->data(), bytes};
  }

 protected:
  static constexpr uint64_t kSettleNs = 30 * base::kMillisecond;
  static constexpr uint64_t kIdleNs = 15 * base::kMillisecond;    // the kernel moves things, too
  static constexpr uint64_t kOwnIdleNs = 5 * base::kMillisecond;  // this thread moves all there is
  /// Settles for `settle_ns`, or until nothing has moved for `idle_ns`.
  ProcessRig(std::unique_ptr<base::Host> host, std::string server_ip,
             uint64_t settle_ns = kSettleNs, uint64_t idle_ns = kIdleNs)
      : host_(std::move(host)),
        server_ip_(std::move(server_ip)),
        settle_ns_(settle_ns),
        idle_ns_(idle_ns) {
    base::Reactor::Options options;
    options.poll_budget_ns = 0;
    for (auto& reactor : reactors_) reactor = std::move(*base::Reactor::create(*host_, options));
  }
  /// Before a side is asked for something.
  virtual void enter(int side) { (void)side; }
  static std::unique_ptr<base::Host> make_host(bool allow_peer_copy) {
    base::LinuxHostOptions options;
    options.allow_peer_copy = allow_peer_copy;
    options.log_sink = base::make_null_sink();
    return std::move(*base::create_linux_host(options));
  }
  void set_device(int side, base::Result<std::unique_ptr<Device>> made) {
    if (!made.ok()) {
      std::fprintf(stderr, "a rig's device: %s\n", made.error().message().c_str());
      std::abort();
    }
    devices_[side] = std::move(*made);
  }

  const std::unique_ptr<base::Host> host_;
  std::unique_ptr<base::Reactor> reactors_[2];

 private:
  static constexpr int kIdleTurns = 100;

  bool turn() {
    bool worked = false;
    for (int side = 0; side < 2; ++side) {
      enter(side);
      worked |= reactors_[side]->turn();
    }
    if (worked) return true;
    // What an idle reactor does before it sleeps; the next turn is its wake-up.
    for (int side = 0; side < 2; ++side) {
      enter(side);
      reactors_[side]->prepare_sleep();
    }
    host_->yield();
    return false;
  }
  /// A port at which somebody listened a moment ago, so that nobody does now.
  uint16_t free_port() {
    return (*device(kServer).listen(*reactors_[kServer], {.ip = server_ip_}, 1))->address().port;
  }

  const std::string server_ip_;
  const uint64_t settle_ns_, idle_ns_;
  std::unique_ptr<Device> devices_[2];
  std::vector<std::unique_ptr<base::Segment>> segments_;
};

/// On the in-host wire. The devices treat each other as strangers: each maps the other's memory, or
/// copies to it by system calls.
class InHostRig final : public ProcessRig {
 public:
  enum class Memory { kSegments, kForeign };
  explicit InHostRig(Memory memory)
      : ProcessRig(make_host(memory == Memory::kForeign), "127.0.0.1", kSettleNs, kOwnIdleNs),
        memory_(memory) {
    for (int side = 0; side < 2; ++side) {
      set_device(side, create_soft_device(*host_, *reactors_[side]));
    }
  }
  std::span<std::byte> allocate(int side, size_t bytes) override {
    if (memory_ == Memory::kSegments) return ProcessRig::allocate(side, bytes);
    heap_.emplace_back(bytes);
    return heap_.back();
  }

 private:
  const Memory memory_;
  std::list<std::vector<std::byte>> heap_;
};

/// On the TCP wire, over loopback.
class TcpRig final : public ProcessRig {
 public:
  TcpRig() : ProcessRig(make_host(false), "127.0.0.1") {
    for (int side = 0; side < 2; ++side) {
      set_device(side, create_tcp_device(*host_, *reactors_[side],
                                         {.ip = "127.0.0.1", .port_faults = true}));
    }
  }
};

/// On the TCP wire between two network namespaces, as between two machines.
class NetworksRig final : public ProcessRig {
 public:
  explicit NetworksRig(const base::TwoNetworks& networks)
      : ProcessRig(make_host(false), networks.kIp[kServer]), networks_(networks) {
    for (int side = 0; side < 2; ++side) {
      enter(side);
      set_device(side, create_tcp_device(*host_, *reactors_[side],
                                         {.ip = networks.kIp[side], .port_faults = true}));
    }
  }
  ~NetworksRig() override { networks_.leave(); }

 private:
  void enter(int side) override { networks_.enter(side); }

  const base::TwoNetworks& networks_;
};

/// The device of both wires, as hosts have it.
class HostRig final : public ProcessRig {
 public:
  enum class Peers { kInHost, kTcp };
  explicit HostRig(Peers peers) : ProcessRig(make_host(false), "127.0.0.1") {
    const bool tcp = peers == Peers::kTcp;
    for (int side = 0; side < 2; ++side) {
      set_device(side, create_host_device(
                           *host_, *reactors_[side],
                           {.listen_tcp = tcp, .tcp_within_host = tcp, .port_faults = true}));
    }
  }
};

/// Two RDMA devices of this machine that reach each other: BRAID_TEST_RDMA=CLIENT,SERVER names
/// them (tests/lab/conformance). BRAID_TEST_RXE_WINDOWS=1: with windows where rxe is below them.
class IbvRig final : public ProcessRig {
 public:
  IbvRig(std::string client, std::string server)
      : ProcessRig(make_host(false), address_of(server), kWireSettleNs, kWireSettleNs) {
    IbvOptions options;
    options.rxe_windows = rxe_windows();
    set_device(kClient, create_ibv_device(*host_, *reactors_[kClient], client, options));
    set_device(kServer, create_ibv_device(*host_, *reactors_[kServer], server, options));
  }
  bool prepare_for_rtr(Qp&) override { return false; }

 private:
  static constexpr uint64_t kWireSettleNs = 150 * base::kMillisecond;  // the kernel moves things
  static bool rxe_windows() {
    const char* const asked = std::getenv("BRAID_TEST_RXE_WINDOWS");
    return asked != nullptr && std::string_view(asked) == "1";
  }
  static std::string address_of(const std::string& device) {
    const auto all = list_ibv_devices();
    for (const IbvDeviceInfo& each : all.ok() ? all.value() : std::vector<IbvDeviceInfo>()) {
      if (each.name == device && each.trouble.empty()) return each.ports[0].addresses[0];
    }
    return "0.0.0.0";
  }
};

/// One pair of networks for all tests of a process.
RigFactory between_networks() {
  const auto create = []() -> std::unique_ptr<Rig> {
    static const std::unique_ptr<base::TwoNetworks> kNetworks = base::TwoNetworks::create();
    if (kNetworks == nullptr) return nullptr;
    return std::make_unique<NetworksRig>(*kNetworks);
  };
  return {.name = "tcp_networks",
          .virtual_time = false,
          .thread_domain = false,
          .create = create,
          .needs = "root, iproute2 and veth, for two network namespaces"};
}

/// Its devices, and no others, name the network device below them.
bool is_rxe(std::string_view device) {
  const std::string parent = "/sys/class/infiniband/" + std::string(device) + "/parent";
  return ::access(parent.c_str(), F_OK) == 0;
}

template <typename Made, typename... Args>
RigFactory factory(const std::string& name, bool virtual_time, bool thread_domain, Args... args) {
  return {.name = name,
          .virtual_time = virtual_time,
          .thread_domain = thread_domain,
          .create = [args...] { return std::unique_ptr<Rig>(std::make_unique<Made>(args...)); },
          .needs = {}};
}

TEST(ConformanceRigs, NetworksBeginWithACarrierAtBothEnds) {
  const auto host = std::move(*base::create_linux_host({.log_sink = base::make_null_sink()}));
  for (int made = 0; made < 4; ++made) {  // of many in a row the kernel tells late
    const auto networks = base::TwoNetworks::create();
    if (networks == nullptr) GTEST_SKIP() << "needs " << between_networks().needs;
    for (int side = 0; side < 2; ++side) {
      networks->enter(side);
      EXPECT_EQ(host->has_link(networks->kIp[side]), true);
    }
    networks->leave();
  }
}

TEST(ConformanceRigs, EachNetworkHasItsOwnAddressOnly) {
  const auto networks = base::TwoNetworks::create();
  if (networks == nullptr) GTEST_SKIP() << "needs " << between_networks().needs;
  const auto host = std::move(*base::create_linux_host({.log_sink = base::make_null_sink()}));
  for (int side = 0; side < 2; ++side) {
    networks->enter(side);
    EXPECT_TRUE(host->is_local_address(networks->kIp[side]));
    EXPECT_FALSE(host->is_local_address(networks->kIp[1 - side]));
  }
  networks->leave();
  EXPECT_FALSE(host->is_local_address(networks->kIp[0]));
}

}  // namespace

std::vector<RigFactory> rigs() {
  std::vector<RigFactory> all{
      factory<SimRig>("sim", true, false),
      factory<SimRig>("sim_td", true, true),
      factory<InHostRig>("inhost", false, false, InHostRig::Memory::kSegments),
      factory<InHostRig>("inhost_foreign_td", false, true, InHostRig::Memory::kForeign),
      factory<TcpRig>("tcp", false, false),
      factory<TcpRig>("tcp_td", false, true),
      between_networks(),
      factory<HostRig>("host", false, false, HostRig::Peers::kInHost),
      factory<HostRig>("host_td", false, true, HostRig::Peers::kInHost),
      factory<HostRig>("host_tcp", false, false, HostRig::Peers::kTcp),
      factory<HostRig>("host_tcp_td", false, true, HostRig::Peers::kTcp),
      factory<SimRig>("sim_tcp", true, false, /*tcp=*/true),
      factory<SimRig>("sim_tcp_td", true, true, /*tcp=*/true)};
  for (RigFactory& each : all) {
    const bool shared_memory =
        each.name.starts_with("inhost") || each.name == "host" || each.name == "host_td";
    if (!shared_memory) continue;
    each.cannot = {{"ConformanceFaults.WhatComesTwiceIsExecutedOnce",
                    "a ring in shared memory has no wire that could repeat what it carries"}};
  }
  if (const char* const pair = std::getenv("BRAID_TEST_RDMA"); pair != nullptr) {
    const std::string_view names(pair);
    const size_t comma = names.find(',');
    BRAID_ASSERT(comma != std::string_view::npos);
    all.push_back(factory<IbvRig>("rdma", false, false, std::string(names.substr(0, comma)),
                                  std::string(names.substr(comma + 1))));
    all.back().pads_private_data = true;
    all.back().may_have_alternate_paths = true;
    all.back().connect_ns = 2 * base::kSecond;
    all.back().cannot = {
        {"ConformanceCm.RequestsBeyondTheBacklogAreRefused",
         "RDMA CM tells a listener's refusal like one of the program"},
        {"ConformanceStates.ValuesOutOfRangeAreRefusedByName",
         "RDMA drivers look at values each in its own way, and name none"},
        {"ConformanceWindows.MemoryKnowsOfItsWindows",
         "RDMA devices do not tell what windows memory has"},
        {"ConformanceWindows.TheEndOfTheQpEndsItsWindows",
         "RDMA devices do not tell what windows memory has"},
    };
    if (is_rxe(names.substr(0, comma))) limit_to_rxe(all.back());
  }
  return all;
}

}  // namespace braid::vhca::conformance
