#include "bench/block/neighbours.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/block/load.h"
#include "vhca/soft_device.h"

namespace braid::bench {
namespace {

constexpr unsigned kForEverMs = 3'600'000;
constexpr unsigned kHeldUs = 500'000;  // less than heartbeats take
constexpr uint64_t kTellNs = 5 * base::kMillisecond;
constexpr unsigned kLooksApartUs = 2000;
constexpr uint64_t kLateMax = 3;

/// As many as the server takes, each sent again when it is answered.
class Clears {
 public:
  explicit Clears(bnbd::RemoteDevice& remote)
      : remote_(remote), requests_(remote.info().queue_depth) {
    uint64_t offset_bytes = 0;
    for (bnbd::BlockRequest& request : requests_) {
      request.op = bnbd::BlockOp::kWriteZeroes;
      request.no_unmap = true;  // it is all written, whatever was there
      request.length_bytes = kFillBytes;
      request.offset_bytes = offset_bytes % kOtherBytes;
      offset_bytes += kFillBytes;
      request.context = this;
      request.done = [](bnbd::BlockRequest& done, base::Errc status) {
        auto& all = *static_cast<Clears*>(done.context);
        must(status, "a clear at the server");
        ++all.answered_;
        all.remote_.submit(done);
      };
      remote.submit(request);
    }
  }
  uint64_t count() const { return requests_.size(); }
  uint64_t answered() const { return answered_; }
  uint64_t answered_since_last_look() { return answered_ - std::exchange(looked_at_, answered_); }

 private:
  bnbd::RemoteDevice& remote_;
  std::vector<bnbd::BlockRequest> requests_;
  uint64_t answered_ = 0;
  uint64_t looked_at_ = 0;
};

/// Runs only while the CPU has nothing else to do.
void step_back() {
  const sched_param none{};
  if (::sched_setscheduler(0, SCHED_IDLE, &none) != 0)
    throw std::runtime_error("the kernel has no class of idle processes");
}

/// One session, and its device.
class Client {
 public:
  Client(Wire wire, uint16_t port, uint64_t poll_budget_ns) : side_(poll_budget_ns) {
    // A server shares out its time by address: this is somebody else.
    device_ = wire == Wire::kTcp
                  ? must(vhca::create_tcp_device(*side_.host, *side_.reactor, {.ip = "127.0.0.2"}))
                  : create_device(side_, wire);
    session_ = connect(side_, *device_, port, "other");
    remote_ = open_export(side_, *session_, kOtherExport);
  }
  base::Reactor& reactor() { return *side_.reactor; }
  bnbd::RemoteSession& session() { return *session_; }
  bnbd::RemoteDevice& remote() { return *remote_; }

 private:
  const BraidSide side_;
  std::unique_ptr<vhca::Device> device_;
  std::unique_ptr<bnbd::RemoteSession> session_;
  std::unique_ptr<bnbd::RemoteDevice> remote_;
};

[[noreturn]] void compute(Channel& channel) {
  step_back();
  channel.send({{"computes", true}});
  for (volatile uint64_t turns = 0;;) turns = turns + 1;
}

void idle_sessions(Channel& channel, uint16_t port, unsigned count) {
  const BraidSide side(0);
  const auto device = create_device(side, Wire::kInHost);
  std::vector<std::unique_ptr<bnbd::RemoteSession>> sessions;
  for (unsigned i = 0; i < count; ++i)
    sessions.push_back(connect(side, *device, port, fmt::format("idle{}", i)));
  channel.send({{"open", true}});
  side.reactor->run();
}

void clear_without_end(Channel& channel, uint16_t port, bool judged) {
  Client client(Wire::kInHost, port, 0);
  Clears clears(client.remote());
  const auto look = [&] {
    while (client.reactor().turn()) continue;
    ::usleep(kLooksApartUs);
    return clears.answered_since_last_look() < clears.count() / 4 * 3;  // some wait for permits
  };
  while (clears.answered() < 2 * clears.count()) (void)look();
  channel.send({{"flows", true}});
  for (uint64_t looks = 1, late = 0;; ++looks) {
    if (look()) continue;
    // The machine may have kept it from looking a few times.
    if (judged && ++late > kLateMax + looks / 100)
      throw std::runtime_error("the server had too little to clear");
  }
}

base::Task<void> tell(base::Reactor& reactor, Channel& channel, const Load& load, uint64_t flows,
                      SharedCount& count) {
  for (bool told = false;;) {
    co_await reactor.sleep_ns(kTellNs);
    count.set(load.operations());
    if (told || load.operations() < flows) continue;
    channel.send({{"flows", true}});
    told = true;
  }
}

void flood(Channel& channel, uint16_t port, Wire wire, bool write, SharedCount& count) {
  step_back();
  Client client(wire, port, base::Reactor::Options().poll_budget_ns);
  const unsigned depth = client.remote().info().queue_depth;
  Load load(client.reactor(), client.remote(), {.write = write, .depth = depth});
  client.reactor().spawn(tell(client.reactor(), channel, load, uint64_t{4} * depth, count));
  load.run_for(kForEverMs);
}

/// Reads that end when somebody looks.
class Held {
 public:
  explicit Held(Client& client) : client_(client), requests_(client.remote().info().queue_depth) {
    region_ = must(client.remote().create_region(requests_.size() * kBlockBytes));
    for (size_t i = 0; i < requests_.size(); ++i) {
      bnbd::BlockRequest& request = requests_[i];
      request.op = bnbd::BlockOp::kRead;
      request.length_bytes = kBlockBytes;
      request.offset_bytes = i * kBlockBytes;
      request.buffer = {.region = region_.get(), .address = region_->data() + i * kBlockBytes};
      request.context = this;
      request.done = [](bnbd::BlockRequest& done, base::Errc status) {
        must(status, "a read");
        ++static_cast<Held*>(done.context)->answered_;
      };
    }
  }
  void ask() {
    answered_ = 0;
    for (bnbd::BlockRequest& request : requests_) client_.remote().submit(request);
    client_.reactor().turn();
  }
  void look() {
    while (answered_ < requests_.size()) client_.reactor().turn();
    if (client_.session().statistics().reconnects > 0)
      throw std::runtime_error("the server has cut off who holds its permits");
  }

 private:
  Client& client_;
  std::vector<bnbd::BlockRequest> requests_;
  std::unique_ptr<bnbd::Region> region_;
  size_t answered_ = 0;
};

void hold(Channel& channel, uint16_t port, Wire wire) {
  Client client(wire, port, 0);
  Held held(client);
  for (bool told = false;; told = true) {
    held.ask();
    if (!told) channel.send({{"holds", true}});
    ::usleep(kHeldUs);
    held.look();
  }
}

}  // namespace

std::string_view to_string(Neighbour neighbour) {
  switch (neighbour) {
    case Neighbour::kNobody:
      return "nobody";
    case Neighbour::kComputes:
      return "a process that computes";
    case Neighbour::kIdle:
      return "idle sessions";
    case Neighbour::kClears:
      return "a client that clears";
    case Neighbour::kReads:
      return "a flood of 4 KiB reads";
    case Neighbour::kWrites:
      return "a flood of 4 KiB writes";
    case Neighbour::kStopped:
      return "a client that is stopped with all under way";
    case Neighbour::kHolds:
      return "a client that holds all its permits";
  }
  return "?";
}

SharedCount::SharedCount() {
  void* const page =
      ::mmap(nullptr, sizeof *count_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BRAID_ASSERT(page != MAP_FAILED);
  count_ = new (page) std::atomic<uint64_t>(0);
}

SharedCount::~SharedCount() {
  ::munmap(count_, sizeof *count_);
}

void be_neighbour(Channel& channel, Neighbour neighbour, uint16_t port, Wire wire,
                  unsigned idle_sessions_count, bool judged, SharedCount& count) {
  switch (neighbour) {
    case Neighbour::kNobody:
      return;
    case Neighbour::kComputes:
      compute(channel);
    case Neighbour::kIdle:
      return idle_sessions(channel, port, idle_sessions_count);
    case Neighbour::kClears:
      return clear_without_end(channel, port, judged);
    case Neighbour::kReads:
    case Neighbour::kStopped:
      return flood(channel, port, wire, false, count);
    case Neighbour::kWrites:
      return flood(channel, port, wire, true, count);
    case Neighbour::kHolds:
      return hold(channel, port, wire);
  }
}

}  // namespace braid::bench
