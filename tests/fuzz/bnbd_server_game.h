// A hostile server under the shipping remote device: whatever it answers, and whatever the device's
// user does, each request ends exactly once, flushes vouch for what is durable, and device and
// session close in time.
#pragma once

#include "tests/fuzz/bnbd_device_user.h"
#include "tests/fuzz/bnbd_hostile_server.h"
#include "tests/fuzz/reached.h"

namespace braid::bnbd::two_party {

inline fuzz::Reached device_opened("the shipping device opens"),
    device_revoked("its server takes it away"), device_replaced("it is replaced"),
    device_lost("it is lost with its session"), asks_for_news("a notice makes it ask for news");

class ServerGame {
 public:
  /// `pushes`: the server gives notice of news.
  ServerGame(const Numbers& numbers, bool pushes) : world_({}), numbers_(numbers), pushes_(pushes) {
    server_ = start<HostileServer>(world_, "server", kServerIp, numbers_, judge_, pushes);
    honest_ = start<HonestClient>(world_, "honest", kHonestIp, numbers_.flag() ? 2 : 1);
    user_ = std::make_unique<DeviceUser>(*honest_, judge_);
    segments_ = honest_->host.segments();
    honest_->uses_region = numbers_.flag();
    honest_->lost_after_ns = numbers_.odd(4) ? 3 * kSecond : base::kNever;
    honest_->open(numbers_.flag() ? kSecond : base::kNever);
    world_.run_until([this] { return honest_->tried; }, 2 * kSecond);
  }
  void play() {
    for (unsigned steps = 0; !numbers_.empty() && steps < 200; ++steps) step();
    end();
  }

 private:
  void step() {
    switch (numbers_.below(8)) {
      case 0:
      case 1:
        return work();
      case 2:
        server_->holds_all = numbers_.flag();
        return server_->release();
      case 3:
        return drop_path();
      case 4:
        return remap();
      case 5:
        server_->news.give_up();
        return disturb(world_, numbers_, kHonestIp, kServerIp);
      case 7:
        if (pushes_) return push();
        [[fallthrough]];
      default:
        return pass_time(world_, numbers_);
    }
  }
  void work() {
    if (!honest_->tried || !honest_->device) return;
    user_->submit(numbers_);
    if (!numbers_.odd(4)) world_.run_for(200 * kMicrosecond);
  }
  /// Notices, one or many; or one with all that is said and done, from now on or no more.
  void push() {
    const uint32_t count = numbers_.below(16);
    if (count >= 14) server_->floods = count == 14;
    server_->home().post([server = server_, count] {
      for (uint32_t i = 0; i <= count; ++i) server->give_notice();
    });
    server_->home().wake();
    if (!numbers_.odd(4)) world_.run_for(kMillisecond);
  }
  void drop_path() {
    if (!honest_->session) return;
    honest_->session->drop_path("the input says so");
    honest_->home().wake();
    if (!numbers_.odd(4)) world_.run_for(300 * kMillisecond);  // it is back, and opens again
  }
  /// The user takes back what the operator of the server took, or what was replaced.
  void remap() {
    if (!honest_->tried || !honest_->device || remaps_ > 0) return;
    require(!honest_->device->explain().empty(), "it says how it is");
    ++remaps_;
    honest_->home().spawn(remap_task());
    honest_->home().wake();
  }
  Task<void> remap_task() {
    (void)co_await honest_->device->remap();
    --remaps_;
  }
  void end() {
    count_states();
    numbers_ = Numbers({});  // all goes the ordinary way, also when the input has not ended
    world_.fabric().heal_all();
    server_->holds_all = server_->floods = false;
    server_->release();
    server_->home().wake();
    require(world_.run_until([this] { return honest_->tried; }, 30 * kSecond), "opening ends");
    require(released_until([this] { return remaps_ == 0; }), "taking back ends");
    if (pushes_ && honest_->device) news_come();
    if (honest_->device) require(!honest_->device->status().server.empty(), "it says how it is");
    honest_->close();
    require(released_until([this] { return honest_->closed; }), "device and session close");
    require(user_->idle(), "each request has ended");
    require(world_.run_until([this] { return honest_->host.segments() == segments_; }, kSecond),
            "the client has its memory back");
    require(world_.run_until([this] { return world_.fabric().open_ends().empty(); }, 10 * kSecond),
            "no connection is left");
  }
  void count_states() const {
    asks_for_news.count(pushes_ && server_->news.questions() > 0);
    if (!honest_->tried || !honest_->device) return;
    device_opened.count();
    device_revoked.count(honest_->device->state() == RemoteState::kRevoked);
    device_replaced.count(honest_->device->state() == RemoteState::kReplaced);
    device_lost.count(honest_->device->state() == RemoteState::kLost);
  }
  /// Whatever it was told before, a notice makes it ask, and it does what it is told then.
  void news_come() {
    const uint64_t before = server_->news.questions();
    server_->size_told_bytes = kDiskBytes / 2;
    const auto done = [this, before] {
      // Lost as a device is that was not superseded before.
      if (honest_->session->state() == trs::SessionState::kLost) return true;
      const RemoteState state = honest_->device->state();
      server_->home().post([server = server_] { server->give_notice(); });
      const bool heard = state != RemoteState::kOpen || server_->nameless ||
                         honest_->device->info().size_bytes == server_->size_told_bytes;
      return heard && server_->news.questions() > before;
    };
    require(released_until(done), "it hears of news");
  }
  /// What the server holds it holds for a while only.
  bool released_until(const std::function<bool()>& done) {
    for (unsigned second = 0; second < 60 && !done(); ++second) {
      server_->release();
      server_->home().wake();
      world_.run_for(kSecond);
    }
    return done();
  }

  base::sim::SimWorld world_;
  Numbers numbers_;
  const bool pushes_;
  FlushJudge judge_;
  HostileServer* server_ = nullptr;
  HonestClient* honest_ = nullptr;
  std::unique_ptr<DeviceUser> user_;
  unsigned remaps_ = 0;
  size_t segments_ = 0;
};

}  // namespace braid::bnbd::two_party
