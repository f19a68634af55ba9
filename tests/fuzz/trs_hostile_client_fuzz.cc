// A hostile client (trs_hostile_client.h) against the shipping server of TRS, beside an honest one
// that must not notice. At the end the honest client's data is as it wrote it, nothing is left of
// the hostile one, and the server stops in time.
// It hears of notices, too, each once.
//   first byte  bit 0: the server lets in nobody without a key; the hostile one has a key of its
//               own. Bits 1, 2: how the server guards its chunks
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/fuzz/reached.h"
#include "tests/fuzz/trs_hostile_client.h"
#include "tests/fuzz/two_party.h"

namespace {

using namespace braid::trs::testing;  // NOLINT
using braid::base::Errc;
using braid::base::kMillisecond;
using braid::base::kSecond;
using braid::fuzz::HostileClient;
using braid::fuzz::Numbers;
using braid::fuzz::require;
using braid::fuzz::start;
namespace trs = braid::trs;
namespace sim = braid::base::sim;

constexpr const char* kHostileIp = "10.0.0.3";
constexpr uint32_t kIoBytes = 2048;
// From here on the store is the honest one's.
constexpr size_t kStoreBytes = 64 << 10;
constexpr uint64_t kHonestOffset = 32 << 10;
constexpr uint64_t kServedWithinNs = 200 * kMillisecond;
constexpr ProcessSize kSize{.memory_bytes = 128 << 10, .registrations_max = 512};

braid::fuzz::Reached session_opened("a hostile session opens"), key_proven("one with a key does");
braid::fuzz::Reached key_revoked("its key is taken away");

class Game {
 public:
  explicit Game(const Numbers& numbers) : world_(sim::SimWorldOptions{}), numbers_(numbers) {
    const uint32_t how = numbers_.below(8);
    keyed_ = (how & 1) != 0;
    guard_ = std::array{trs::ChunkGuard::kNone, trs::ChunkGuard::kWindows, trs::ChunkGuard::kCopy,
                        trs::ChunkGuard::kWindows}[how / 2];
    store_.kept_for = kClientIp;
    store_.kept_from = kHonestOffset;
    store_.raises_notices = true;
    const std::vector<std::string> no_more_ips;
    server_ = start<ServerProcess>(world_, "server", kServerIp, store_, size_t{2}, adjust_server(),
                                   no_more_ips, kSize);
    honest_ = start<ClientProcess>(world_, "honest", kClientIp, size_t{1}, kSize);
    honest_->open([this](trs::ClientOptions& options) {
      if (keyed_) options.key = test_key("honest");
    });
    require(world_.run_until([this] { return honest_->opened; }, kSecond), "the honest one is in");
    segments_ = server_->host.segments();
    io_ = honest_->make_io(trs::Direction::kWrite, kHonestOffset, kIoBytes);
    auto* const raw = start<RawPeer>(world_, "hostile", kHostileIp, kHostileIp, kSize);
    hostile_ = std::make_unique<HostileClient>(world_, *raw, numbers_, keyed_);
  }

  void play() {
    for (unsigned steps = 0; !numbers_.empty() && steps < 300; ++steps) step();
    end();
  }

 private:
  std::function<void(trs::ServerOptions&)> adjust_server() const {
    return [this](trs::ServerOptions& options) {
      options.sessions_max = 6;
      options.queue_depth = HostileClient::kChunks;
      options.max_io_bytes = HostileClient::kMaxIoBytes;
      options.guard = guard_;
      if (keyed_) options.keys = ring(true);
    };
  }
  static std::shared_ptr<const trs::KeyRing> ring(bool with_insider) {
    return with_insider ? test_ring({test_key("honest"), test_key("insider", 2)})
                        : test_ring({test_key("honest")});
  }

  void step() {
    take_step();
    const bool opened = store_.opened > 1;
    session_opened.count(opened);
    key_proven.count(opened && keyed_);
    key_revoked.count(!insider_);
  }
  void take_step() {
    switch (numbers_.below(16)) {
      case 0:
      case 1:
        return hostile_->come_in();
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
        return hostile_->request();
      case 7:
        return hostile_->fence();
      case 8:
        return hostile_->anything();
      case 9:
        return hostile_->drop();
      case 10:
        return user_acts(numbers_.next<uint8_t>());
      case 11:
        return braid::fuzz::disturb(world_, numbers_, kHostileIp, kServerIp);
      case 12:
        if (!store_.hold) honest_works();
        return;
      case 13:
        return hostile_->say_it_lives();
      case 14:
        return numbers_.odd(4) ? operate() : hostile_->say_info_again();
      default:
        return braid::fuzz::pass_time(world_, numbers_);
    }
  }
  /// The server's user: holds requests or lets them go, and raises notices, cleared before or not.
  void user_acts(uint8_t how) {
    hold((how & 1) != 0);
    if ((how & 2) == 0) return;
    for (unsigned i = 0; i <= how / 64u; ++i) raise_notices((how & 4) != 0);
    if ((how & 8) != 0) world_.run_for(50 * braid::base::kMicrosecond);
  }
  void raise_notices(bool cleared) {
    if (cleared) ++notices_;
    server_->home().post([this, cleared] {
      for (trs::ServerSession* const session : server_->server->sessions()) {
        if (cleared) session->clear_notice();
        session->raise_notice();
      }
    });
    server_->home().wake();
  }
  void hold(bool on) {
    store_.hold = on;
    if (!on) server_->home().post([this] { server_->release(); });
    server_->home().wake();
  }
  /// What a person at the server does: ends the hostile one's sessions, or takes its key away.
  void operate() {
    const bool revoke = keyed_ && numbers_.flag();
    server_->home().post([this, revoke] {
      if (revoke) {
        insider_ = !insider_;
        require(server_->server->set_keys(ring(insider_)).ok(), "keys can be changed");
        return;
      }
      for (trs::ServerSession* const session : server_->server->sessions()) {
        if (session->name() == "hostile") (void)session->end("the input says so");
      }
    });
    server_->home().wake();
    world_.run_for(10 * braid::base::kMicrosecond);
  }

  // --- the honest one

  /// Writes, and reads again, whatever the other does.
  void honest_works() {
    io_->request.direction = trs::Direction::kWrite;
    std::fill(io_->buffer.begin(), io_->buffer.end(), static_cast<std::byte>(++stamp_));
    honest_does_it();
    io_->request.direction = trs::Direction::kRead;
    std::fill(io_->buffer.begin(), io_->buffer.end(), std::byte{0xee});
    honest_does_it();
    require(all_are(io_->buffer, stamp_), "the honest client reads what it wrote");
    const std::span<const std::byte> its(store_.bytes.data() + kHonestOffset,
                                         kStoreBytes - kHonestOffset);
    require(all_are(its.first(kIoBytes), stamp_) && all_are(its.subspan(kIoBytes), 0),
            "nobody else writes where it alone may");
  }
  void honest_does_it() {
    io_->completions = 0;
    honest_->submit(*io_);
    require(world_.run_until([this] { return io_->done; }, kServedWithinNs),
            "the honest one is served in time");
    require(io_->completions == 1 && io_->status == Errc::kOk, "once, and well");
  }
  /// Its path stands all the time.
  void honest_hears_of_notices() {
    const auto heard = [this] { return honest_->notice_calls; };
    world_.run_for(kServedWithinNs);
    require(heard() <= notices_, "each notice comes once");
    const unsigned before = heard();
    raise_notices(true);
    require(world_.run_until([&] { return heard() > before; }, kServedWithinNs),
            "the honest one hears of a notice");
  }
  static bool all_are(std::span<const std::byte> bytes, uint8_t value) {
    return std::all_of(bytes.begin(), bytes.end(),
                       [value](std::byte b) { return b == static_cast<std::byte>(value); });
  }

  // --- the end

  void end() {
    world_.fabric().heal_all();
    hold(false);
    world_.run_for(100 * kMillisecond);
    honest_works();
    honest_hears_of_notices();
    require(honest_->disconnected_calls == 0, "the honest client was not disturbed");
    require(world_.run_until([this] { return hostile_->decided(); }, 30 * kSecond),
            "each connection is taken or refused");
    hostile_->leave();
    const auto alone = [this] {
      const trs::ServerStatistics statistics = server_->server->statistics();
      return statistics.sessions == 1 && statistics.unproven == 0;
    };
    require(world_.run_until(alone, 30 * kSecond), "what the hostile client had is gone");
    require(store_.opened == store_.closed + 1, "each session that was opened is closed");
    require(server_->held.empty(), "no request is left at the server's user");
    require(world_.run_until([this] { return server_->host.segments() == segments_; }, kSecond),
            "the server has its memory back");
    honest_->close();
    require(world_.run_until([this] { return honest_->closed; }, 5 * kSecond), "a session closes");
    bool stopped = false;
    server_->home().post([&] { server_->home().spawn(stop(*server_->server, stopped)); });
    server_->home().wake();
    require(world_.run_until([&stopped] { return stopped; }, 30 * kSecond), "the server stops");
    require(world_.fabric().open_ends().empty(), "no connection is left");
  }
  static braid::base::Task<void> stop(trs::Server& server, bool& stopped) {
    co_await server.stop();
    stopped = true;
  }

  Store store_{.bytes = std::vector<std::byte>(kStoreBytes)};
  sim::SimWorld world_;
  Numbers numbers_;
  bool keyed_ = false;
  bool insider_ = true;  // its key is on the server's ring
  trs::ChunkGuard guard_ = trs::ChunkGuard::kNone;
  ServerProcess* server_ = nullptr;
  ClientProcess* honest_ = nullptr;
  size_t segments_ = 0;
  std::unique_ptr<Io> io_;
  std::unique_ptr<HostileClient> hostile_;  // goes before its process
  uint8_t stamp_ = 0;
  unsigned notices_ = 1;  // for each session; the first when it opens
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  Game(Numbers({data, size_bytes})).play();
  return 0;
}
