// A hostile server under the shipping remote device: whatever it answers, and whatever the device's
// user does, each request ends exactly once, flushes vouch for what is durable, and device and
// session close in time.
#pragma once

#include "tests/fuzz/bnbd_device_user.h"
#include "trs/wire.h"

namespace braid::bnbd::two_party {

class HostileServer final : public Node, private trs::ServerUser {
 public:
  HostileServer(base::sim::SimHost& process, Numbers& numbers, FlushJudge& judge)
      : Node(process, kServerIp, 1, kRegistrationsMax), numbers_(numbers), judge_(judge) {
    trs::ServerOptions options;
    options.listen = {kServerIp, kPort};
    options.reactors = reactor_list();
    options.queue_depth = kQueueDepth;
    options.max_io_bytes = kMaxIoBytes;
    // As an older version, which is asked for news again and again.
    options.features = trs::kAllFeatures & ~trs::wire::kFeatureNotices;
    trs::ServerUser& user = *this;
    transport = std::move(trs::Server::create(*device, std::move(options), user)).value();
  }
  /// What waits gets its answer, whatever it is.
  void release() {
    for (trs::ServerRequest* each : std::exchange(held_, {})) reply(*each);
  }
  bool holds_all = false;
  std::unique_ptr<trs::Server> transport;

 private:
  void session_opened(trs::ServerSession&) override {}
  void session_closed(trs::ServerSession&) override {}
  void request(trs::ServerRequest& request) override {
    if (holds_all || numbers_.below(16) == 15) {
      held_.push_back(&request);
    } else {
      reply(request);
    }
  }
  void reply(trs::ServerRequest& request) {
    const std::vector<std::byte> says = numbers_.bent(answer_to(request));
    const size_t bytes = std::min(says.size(), request.data.size());
    if (request.direction == trs::Direction::kRead && bytes > 0) {
      std::memcpy(request.data.data(), says.data(), bytes);
    }
    bool fails = numbers_.below(8) == 7;
    if (fails && numbers_.flag()) return request.answer(io(request, true));
    const Errc status = fails ? base::errc_from_errno(numbers_.next<uint8_t>()) : Errc::kOk;
    auto type = wire::request_type(request.user_header);
    if (type.ok() && *type == wire::MessageType::kOpen) tell_opening(request);
    const bool is_io = type.ok() && *type == wire::MessageType::kIo;
    request.answer(is_io && status == Errc::kOk ? io(request, false) : status);
  }
  /// Incarnations come as they were meant: whoever changes those makes no server of any kind.
  void tell_opening(const trs::ServerRequest& request) {
    auto told = wire::parse_open_answer(request.data);
    if (!told.ok()) return;
    if (told->device_id != device_id_ || told->incarnation != incarnation_ ||
        told->identity.empty()) {
      return judge_.give_up();
    }
    if (!told->write_cache) judge_.give_up();
    judge_.tells_opening(device_id_, incarnation_);
  }
  /// Does it, or fails as a disk does.
  Errc io(const trs::ServerRequest& request, bool fails) {
    wire::Io message;
    if (wire::parse_io(request.user_header, message) != nullptr) return Errc::kIo;
    if (!judge_.uses(message.device_id)) {
      if (!numbers_.odd(16)) return Errc::kDisconnected;  // as to what is not open
      judge_.give_up();
    }
    const wire::Operation operation = wire::operation_of(message);
    if (operation == wire::Operation::kRead) return fails ? Errc::kIo : Errc::kOk;
    if (operation == wire::Operation::kFlush) {
      if (fails) judge_.flush_fails(request.connection);
      return !fails && judge_.flushes(request.connection) ? Errc::kOk : Errc::kIo;
    }
    if (fails) return Errc::kIo;
    const bool durable = (message.operation_flags & wire::kFlagForceUnitAccess) != 0;
    const uint64_t begin = message.sector * wire::kSectorBytes;
    const uint64_t end = begin + message.length_bytes;
    for (uint64_t at = begin; at < end; at += kBlockBytes)
      judge_.changes(at / kBlockBytes, durable);
    return Errc::kOk;
  }
  std::vector<std::byte> answer_to(const trs::ServerRequest& request) {
    auto type = wire::request_type(request.user_header);
    if (!type.ok()) return {};
    switch (*type) {
      case wire::MessageType::kSessionInfo: {
        wire::SessionInfo info;
        info.header.type = uint16_t{1};
        if (numbers_.below(8) == 7) info.version = numbers_.next<uint8_t>();
        return to_bytes(info);
      }
      case wire::MessageType::kOpen:
        return opened();
      case wire::MessageType::kNews: {
        wire::NewsList news;
        news.newest = numbers_.below(8);
        for (uint32_t n = numbers_.below(4); n > 0; --n) {
          news.items.push_back({numbers_.flag() ? device_id_ : numbers_.next<uint32_t>(),
                                static_cast<wire::NewsKind>(1 + numbers_.below(2)),
                                numbers_.next<uint16_t>() * 512ull});
        }
        return wire::make_news_answer(news);
      }
      default:
        return std::vector<std::byte>(request.data.size(), std::byte{0x77});
    }
  }
  std::vector<std::byte> opened() {
    if (numbers_.below(8) == 7) {
      return to_bytes(wire::make_refusal(numbers_.below(2) != 0 ? 128 : 16, "not today"));
    }
    wire::OpenedDevice device;
    device.device_id = ++device_id_;
    device.size_bytes = numbers_.below(8) == 7 ? numbers_.next<uint16_t>() * 512ull : kDiskBytes;
    device.max_io_bytes = 4096u << numbers_.below(3);
    device.max_discard_bytes = device.max_write_zeroes_bytes = kDiskBytes;
    device.physical_block_bytes = device.logical_block_bytes = numbers_.below(8) == 7 ? 512 : 4096;
    device.force_unit_access = numbers_.flag();
    device.write_cache = !numbers_.odd(8);
    device.identity = numbers_.below(8) == 7 ? "another" : "one";
    device.incarnation = incarnation_ = 1 + numbers_.below(2) + 2 * judge_.failures();
    device.tenure = numbers_.below(8) == 7 ? 2 : 1;
    wire::ExtendedOpenAnswer answer;
    answer.answer = wire::make_open_answer(device);
    answer.extension = wire::make_extension(device);
    return to_bytes(answer);
  }

  Numbers& numbers_;
  FlushJudge& judge_;
  std::vector<trs::ServerRequest*> held_;
  uint32_t device_id_ = 6;    // of the last opening
  uint64_t incarnation_ = 0;  // that it told
};

class ServerGame {
 public:
  explicit ServerGame(const Numbers& numbers) : world_({}), numbers_(numbers) {
    server_ = start<HostileServer>(world_, "server", kServerIp, numbers_, judge_);
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
        return disturb(world_, numbers_, kHonestIp, kServerIp);
      default:
        return pass_time(world_, numbers_);
    }
  }
  void work() {
    if (!honest_->tried || !honest_->device) return;
    user_->submit(numbers_);
    if (!numbers_.odd(4)) world_.run_for(200 * kMicrosecond);
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
    world_.fabric().heal_all();
    server_->holds_all = false;
    server_->release();
    server_->home().wake();
    require(world_.run_until([this] { return honest_->tried; }, 30 * kSecond), "opening ends");
    require(released_until([this] { return remaps_ == 0; }), "taking back ends");
    if (honest_->device) require(!honest_->device->status().server.empty(), "it says how it is");
    honest_->close();
    require(released_until([this] { return honest_->closed; }), "device and session close");
    require(user_->idle(), "each request has ended");
    require(world_.run_until([this] { return honest_->host.segments() == segments_; }, kSecond),
            "the client has its memory back");
    require(world_.run_until([this] { return world_.fabric().open_ends().empty(); }, 10 * kSecond),
            "no connection is left");
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
  FlushJudge judge_;
  HostileServer* server_ = nullptr;
  HonestClient* honest_ = nullptr;
  std::unique_ptr<DeviceUser> user_;
  unsigned remaps_ = 0;
  size_t segments_ = 0;
};

}  // namespace braid::bnbd::two_party
