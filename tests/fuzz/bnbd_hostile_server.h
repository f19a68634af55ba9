// A server of BNBD over the shipping TRS that answers what the input chooses: the ordinary way but
// for what the input bends or leaves out. It may give notice of news, at any moment.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/fuzz/bnbd_flush_judge.h"
#include "tests/fuzz/bnbd_honest_client.h"
#include "tests/fuzz/bnbd_news_judge.h"
#include "trs/wire.h"

namespace braid::bnbd::two_party {

class HostileServer final : public Node, private trs::ServerUser {
 public:
  /// `pushes`: else it is as an older version, which is asked for news again and again.
  HostileServer(base::sim::SimHost& process, Numbers& numbers, FlushJudge& judge, bool pushes)
      : Node(process, kServerIp, 1, {.registrations_max = kRegistrationsMax}),
        numbers_(numbers),
        judge_(judge),
        pushes_(pushes) {
    trs::ServerOptions options;
    options.listen = {kServerIp, kPort};
    options.reactors = reactor_list();
    options.queue_depth = kQueueDepth;
    options.max_io_bytes = kMaxIoBytes;
    if (!pushes) options.features = trs::kAllFeatures & ~trs::wire::kFeatureNotices;
    trs::ServerUser& user = *this;
    transport = std::move(trs::Server::create(*device, std::move(options), user)).value();
  }
  /// What waits gets its answer, whatever it is.
  void release() {
    for (trs::ServerRequest* each : std::exchange(held_, {})) reply(*each);
  }
  /// By all sessions: once for each time that it is cleared before. Home reactor.
  void give_notice() {
    for (trs::ServerSession* const session : transport->sessions()) give_notice(*session);
  }
  bool holds_all = false;
  bool floods = false;           // a notice with each session, each request and each answer
  uint64_t size_told_bytes = 0;  // if not 0: of whatever was opened, to whoever asks for news
  bool nameless = false;         // what it opened last has an id of which no news can tell
  NewsJudge news;
  std::unique_ptr<trs::Server> transport;

 private:
  void session_opened(trs::ServerSession& session) override {
    if (floods) give_notice(session);
  }
  void session_closed(trs::ServerSession&) override {}
  void give_notice(trs::ServerSession& session) {
    if (!session.takes_notices()) return;
    news.notice_given();
    session.clear_notice();
    session.raise_notice();
  }
  void request(trs::ServerRequest& request) override {
    if (floods) give_notice(*request.session);
    const bool asks = asks_for_news(request);
    if (asks) news.asked(pushes_, host.now_ns());
    if (holds_all || numbers_.below(16) == 15) {
      held_.push_back(&request);
      if (asks) news.answered_oddly();
    } else {
      reply(request);
    }
  }
  static bool asks_for_news(const trs::ServerRequest& request) {
    auto type = wire::request_type(request.user_header);
    return type.ok() && *type == wire::MessageType::kNews;
  }
  void reply(trs::ServerRequest& request) {
    const std::vector<std::byte> says = numbers_.bent(answer_to(request));
    if (floods) give_notice(*request.session);
    const size_t bytes = std::min(says.size(), request.data.size());
    if (request.direction == trs::Direction::kRead && bytes > 0) {
      std::memcpy(request.data.data(), says.data(), bytes);
    }
    bool fails = numbers_.below(8) == 7;
    if (fails && numbers_.flag()) {
      if (asks_for_news(request)) news.answered_oddly();
      return request.answer(io(request, true));
    }
    const Errc status = fails ? base::errc_from_errno(numbers_.next<uint8_t>()) : Errc::kOk;
    auto type = wire::request_type(request.user_header);
    if (type.ok() && *type == wire::MessageType::kOpen) tell_opening(request);
    const bool is_io = type.ok() && *type == wire::MessageType::kIo;
    if (asks_for_news(request) && !tells_nothing(request, status)) news.answered_oddly();
    request.answer(is_io && status == Errc::kOk ? io(request, false) : status);
  }
  static bool tells_nothing(const trs::ServerRequest& request, Errc status) {
    auto told = wire::parse_news_answer(request.data);
    return status == Errc::kOk && told.ok() && told->items.empty();
  }
  /// Incarnations come as they were meant: whoever changes those makes no server of any kind.
  void tell_opening(const trs::ServerRequest& request) {
    auto told = wire::parse_open_answer(request.data);
    if (!told.ok()) return;
    nameless = told->device_id == 0;
    if (told->device_id != 0) ids_told_.push_back(told->device_id);
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
      case wire::MessageType::kNews:
        return wire::make_news_answer(size_told_bytes != 0 ? sizes() : any_news());
      default:
        return std::vector<std::byte>(request.data.size(), std::byte{0x77});
    }
  }
  wire::NewsList any_news() {
    wire::NewsList told;
    told.newest = numbers_.below(8);
    for (uint32_t n = numbers_.below(4); n > 0; --n) {
      wire::DeviceNews& item = told.items.emplace_back();
      item.device_id = numbers_.flag() ? device_id_ : numbers_.next<uint32_t>();
      item.kind = static_cast<wire::NewsKind>(1 + numbers_.below(2));
      item.size_bytes = numbers_.next<uint16_t>() * 512ull;
    }
    return told;
  }
  /// Of the last openings: what the client uses may be an older one than the last.
  wire::NewsList sizes() const {
    wire::NewsList told;
    for (auto id = ids_told_.rbegin(); id != ids_told_.rend() && told.items.size() < 8; ++id)
      told.items.push_back({*id, wire::NewsKind::kResized, size_told_bytes});
    return told;
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
  const bool pushes_;
  std::vector<trs::ServerRequest*> held_;
  uint32_t device_id_ = 6;          // of the last opening
  uint64_t incarnation_ = 0;        // that it told
  std::vector<uint32_t> ids_told_;  // bent or not, of all openings
};

}  // namespace braid::bnbd::two_party
