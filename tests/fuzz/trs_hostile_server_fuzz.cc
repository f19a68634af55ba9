// A hostile server (trs_hostile_server.h) against the shipping client of TRS: the input also says
// what the client is asked for and what its operator does. At the end an honest server takes the
// hostile one's place: what the client had under way ends exactly once, well if the hostile one had
// granted what the honest one does, all permits are there and its notice is heard of, and the
// session closes in time with nothing left of it. What the server has not answered ends only as
// somebody wants it: cancelled, given up, or lost with the session.
//   first byte  bit 0: client and server have a key; bit 1: the session has two paths; bit 2: the
//               client has two reactors, which lend each other permits
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "tests/fuzz/reached.h"
#include "tests/fuzz/trs_client_operator.h"
#include "tests/fuzz/trs_hostile_server.h"
#include "tests/fuzz/two_party.h"

namespace {

using namespace braid::trs::testing;  // NOLINT
using braid::base::Errc;
using braid::base::kMicrosecond;
using braid::base::kMillisecond;
using braid::base::kSecond;
using braid::fuzz::HostileLine;
using braid::fuzz::HostileServer;
using braid::fuzz::Numbers;
using braid::fuzz::require;
namespace base = braid::base;
namespace trs = braid::trs;
namespace sim = braid::base::sim;

constexpr const char* kServerIpB = "10.1.0.1";
constexpr const char* kClientIpB = "10.1.0.2";
constexpr size_t kIoMax = 40;
constexpr uint32_t kIoBytes = HostileServer::kMaxIoBytes;
constexpr ProcessSize kClientSize{.memory_bytes = kIoMax * kIoBytes, .registrations_max = 512};
constexpr ProcessSize kServerSize{.memory_bytes = 0, .registrations_max = 512};

braid::fuzz::Reached opened("the session opens by the hostile server"),
    key_opened("it opens by key"), served("the hostile server answers a request"),
    taken_over("the honest one serves what the hostile one had"), cancelled_one("a cancel"),
    gave_up("a request is given up"), lost("the session is lost");

class Game {
 public:
  explicit Game(const Numbers& numbers) : world_(sim::SimWorldOptions{}), numbers_(numbers) {
    const uint32_t how = numbers_.below(8);
    keyed_ = (how & 1) != 0;
    const bool two_paths = (how & 2) != 0;
    server_at_ = &world_.add_machine("server");
    sim::SimMachine& client_at = world_.add_machine("client");
    world_.fabric().add_port(*server_at_, kServerIp);
    world_.fabric().add_port(client_at, kClientIp);
    add_server(kServerIp);
    sim::SimHost& host = client_at.start_process("client");
    auto client = std::make_unique<ClientProcess>(host, (how & 4) != 0 ? 2 : 1, kClientSize);
    client_ = client.get();
    if (two_paths) {
      world_.fabric().add_port(*server_at_, kServerIpB);
      world_.fabric().add_port(client_at, kClientIpB);
      add_server(kServerIpB);
      client_->more_paths = {client_->add_port(kClientIpB, kServerIpB)};
    }
    host.run(std::move(client));
    segments_ = host.segments();
  }

  void play() {
    gives_up_ = numbers_.odd(4);
    const uint32_t features = numbers_.odd(8) ? numbers_.below(1024) : trs::kAllFeatures;
    client_->open([&](trs::ClientOptions& options) {
      options.reconnect.attempt_timeout_ns = kSecond;
      options.reconnect.delay_max_ns = kSecond;
      options.admin_timeout_ns = kSecond;
      if (gives_up_) options.reconnect.give_up_after_ns = 2 * kSecond;
      options.features = features;
      if (keyed_) options.key = test_key("client");
    });
    ordinary_ = !gives_up_ && features == trs::kAllFeatures;
    client_->on_reconnected = [this]() -> base::Task<base::Status> {
      if (numbers_.odd(8)) co_return base::make_error(Errc::kBusy, "not yet");
      co_return base::Status();
    };
    for (unsigned steps = 0; !numbers_.empty() && steps < 300; ++steps) step();
    end();
  }

 private:
  void add_server(const char* ip) {
    sim::SimHost& host = server_at_->start_process(ip);
    auto raw = std::make_unique<HostileServer>(host, ip, numbers_, keyed_);
    hosts_.push_back(&host);
    raws_.push_back(raw.get());
    host.run(std::move(raw));
  }

  void step() {
    HostileServer& raw = *raws_[raws_.size() == 1 ? 0 : numbers_.below(2)];
    switch (numbers_.below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return serve(1);
      case 4:
        return serve(8);  // as long as it takes to open
      case 5:
      case 6:
      case 7:
        return submit();
      case 8:
        ordinary_ = false;
        return raw.grant(!numbers_.odd(4));
      case 9:
        return anything(raw);
      case 10:
        return drop(raw);
      case 11:
        return braid::fuzz::disturb(world_, numbers_, &raw == raws_[0] ? kClientIp : kClientIpB,
                                    &raw == raws_[0] ? kServerIp : kServerIpB);
      case 12:
        return numbers_.flag() ? operate() : cancel();
      default:
        return braid::fuzz::pass_time(world_, numbers_);
    }
  }

  void serve(unsigned rounds) {
    for (unsigned i = 0; i < rounds; ++i) {
      for (HostileServer* const raw : raws_) raw->serve();
      world_.run_for(40 * kMicrosecond);
    }
  }

  void submit() {
    if (!client_->opened || ios_.size() >= kIoMax) return;
    const size_t reactor = client_->reactors.size() == 1 ? 0 : numbers_.below(2);
    trs::ClientQueue& queue = client_->session->queue(reactor);
    trs::Permit permit = queue.acquire();
    if (!permit) return wait_for_permit(reactor);
    const bool read = numbers_.flag();
    const uint32_t bytes = numbers_.flag() ? kIoBytes : 512;
    ios_.push_back(client_->make_io(read ? trs::Direction::kRead : trs::Direction::kWrite,
                                    ios_.size() * kIoBytes, bytes));
    Io& io = *ios_.back();
    io.request.has_words = numbers_.odd(4);
    io.request.permit = std::move(permit);
    queue.submit(io.request);
    io_reactors_.push_back(reactor);
    cancelled_.push_back(false);
    client_->reactors[reactor]->wake();
    if (!numbers_.odd(4)) world_.run_for(20 * kMicrosecond);
  }
  /// It asks the other reactor, too.
  void wait_for_permit(size_t reactor) {
    trs::PermitWaiter& waiter = waiters_[reactor];
    if (waiter.permit_free != nullptr) return;
    waiter.context = nullptr;
    waiter.permit_free = [](trs::PermitWaiter& its) { its.permit_free = nullptr; };
    client_->session->queue(reactor).wait_for_permit(waiter);
    client_->reactors[reactor]->wake();
  }
  void cancel() {
    if (ios_.empty()) return;
    const size_t index = numbers_.below(static_cast<uint32_t>(ios_.size()));
    const size_t reactor = io_reactors_[index];
    Io& io = *ios_[index];
    if (io.completions > 0) return;
    const bool taken_back = client_->session->queue(reactor).cancel(io.request);
    cancelled_[index] = cancelled_[index] || taken_back;
    client_->reactors[reactor]->wake();
  }

  void operate() {
    if (!client_->opened || numbers_.empty()) return;
    if (!operator_.acts(*client_->session, client_->home(), numbers_)) {
      ordinary_ = false;
      may_be_lost_ = true;
    }
    client_->home().wake();
  }

  void anything(HostileServer& raw) {
    HostileLine* const by = raw.pick();
    if (by == nullptr) return;
    const std::vector<std::byte> bytes = numbers_.take(numbers_.next<uint16_t>() % 300);
    switch (numbers_.below(4)) {
      case 0:
        return raw.send(*by->raw, bytes);
      case 1:
        return raw.send_imm(*by->raw, bytes, numbers_.next<uint32_t>());
      case 2:  // anywhere in the memory that the client exposes
        return raw.write_imm(
            *by->raw, bytes,
            reinterpret_cast<uint64_t>(client_->memory->data()) + numbers_.next<uint16_t>(),
            client_->mr->rkey, numbers_.next<uint32_t>());
      default:
        return raw.write_imm(*by->raw, {}, 0, 0, numbers_.next<uint32_t>());
    }
  }

  void drop(HostileServer& raw) {
    HostileLine* const line = raw.pick();
    if (line != nullptr && line->raw->decided) line->raw->connection.reset();
  }

  /// Another takes the place: requests end well, or by giving up, or with the session.
  void end() {
    opened.count(client_->opened);
    key_opened.count(client_->opened && keyed_);
    for (const auto& io : ios_) served.count(io->done && io->status == Errc::kOk);
    world_.fabric().heal_all();
    for (sim::SimHost* const host : hosts_) host->kill();
    raws_.clear();
    numbers_ = Numbers({});  // also when the input has not ended
    const unsigned noticed = client_->notice_calls;
    world_.run_for(100 * kMillisecond);
    start_honest_server();
    require(
        world_.run_until([this] { return client_->opened || client_->open_error; }, 20 * kSecond),
        "opening ends");
    if (!client_->opened) return require(ios_.empty(), "no session, no requests");
    client_->home().post([this] {
      for (const trs::PathStatus& path : client_->session->paths()) {
        if (path.disconnected_by_operator) (void)client_->session->reconnect_path(path.id);
      }
    });
    client_->home().wake();
    finish_requests();
    for (size_t i = 0; i < ios_.size(); ++i) check_end(*ios_[i], cancelled_[i]);
    if (ordinary_) {
      require(all_permits_are_back(), "all permits are there");
      const auto heard = [this, noticed] { return client_->notice_calls > noticed; };
      require(world_.run_until(heard, 20 * kSecond), "it hears of the honest server's notice");
    }
    client_->close();
    require(world_.run_until([this] { return client_->closed; }, 20 * kSecond), "it closes");
    for (const auto& io : ios_) require(io->completions == 1, "each request has ended");
    require(world_.run_until([this] { return operator_.idle(); }, 10 * kSecond), "and each task");
    client_->session.reset();
    require(world_.run_until([this] { return client_->host.segments() == segments_; }, kSecond),
            "the client has its memory back");
    require(world_.run_until([this] { return world_.fabric().open_ends().empty(); }, 10 * kSecond),
            "no connection is left");
  }
  void start_honest_server() {
    sim::SimHost& host = server_at_->start_process("server");
    store_.raises_notices = true;
    const std::function<void(trs::ServerOptions&)> adjust = [this](trs::ServerOptions& options) {
      options.queue_depth = HostileServer::kDepth;
      options.max_io_bytes = HostileServer::kMaxIoBytes;
      if (keyed_) options.keys = test_ring({test_key("client")});
    };
    std::vector<std::string> more_ips;
    if (hosts_.size() > 1) more_ips.emplace_back(kServerIpB);
    host.run(std::make_unique<ServerProcess>(host, store_, 1, adjust, more_ips, kServerSize));
  }
  /// What the hostile one has not answered, the honest one serves.
  void finish_requests() {
    std::vector<const Io*> rest;
    for (const auto& io : ios_)
      if (!io->done) rest.push_back(io.get());
    const auto done = [&rest] {
      return std::all_of(rest.begin(), rest.end(), [](const Io* io) { return io->done; });
    };
    const bool all = world_.run_until(done, ordinary_ ? 20 * kSecond : kSecond);
    require(all || !ordinary_, "each request is served by the honest server");
    for (const Io* const io : rest) {
      taken_over.count(io->done && io->status == Errc::kOk);
      const bool well = io->status == Errc::kOk || !io->request.answered();
      require(!ordinary_ || well, "and well");
    }
    for (const auto& io : ios_) require(io->completions <= 1, "a request ends once");
  }
  /// Before the session closes.
  void check_end(const Io& io, bool cancelled) const {
    if (!io.done) return;
    if (io.request.answered()) return require(!cancelled, "what is taken back gets no answer");
    switch (io.status) {
      case Errc::kCanceled:
        cancelled_one.count();
        return require(cancelled, "a request is cancelled by its user only");
      case Errc::kTimedOut:
        gave_up.count();
        return require(gives_up_, "a client gives up if it was told to");
      case Errc::kDisconnected:
        lost.count();
        return require(may_be_lost_, "a session is lost if it may be");
      case Errc::kInvalid:
        return require(!ordinary_, "the server grants what is asked for");
      default:
        return require(false, "there is no other end");
    }
  }
  bool all_permits_are_back() {
    const auto all_free = [this] {
      uint64_t free = 0;
      for (size_t i = 0; i < client_->reactors.size(); ++i) {
        free += client_->session->queue(i).statistics().permits_free;
      }
      const trs::SessionLimits& limits = client_->session->limits();
      return free == limits.queue_depth - limits.admin_permits;
    };
    return world_.run_until(all_free, kSecond);
  }

  Store store_{.bytes = std::vector<std::byte>(kIoMax * kIoBytes)};
  sim::SimWorld world_;
  Numbers numbers_;
  bool keyed_ = false;
  bool gives_up_ = false, may_be_lost_ = false;  // what the client was told
  bool ordinary_ = true;  // the hostile server has granted only what the honest one does
  sim::SimMachine* server_at_ = nullptr;
  std::vector<sim::SimHost*> hosts_;
  std::vector<HostileServer*> raws_;
  ClientProcess* client_ = nullptr;
  std::vector<std::unique_ptr<Io>> ios_;
  std::vector<size_t> io_reactors_;
  std::vector<bool> cancelled_;
  std::array<trs::PermitWaiter, 2> waiters_;
  braid::fuzz::ClientOperator operator_;
  size_t segments_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  Game(Numbers({data, size_bytes})).play();
  return 0;
}
