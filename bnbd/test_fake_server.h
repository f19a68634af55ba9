// For tests of the client: a server that speaks BNBD over TRS and says of its device whatever the
// test wants, holds answers back, or answers with any errno.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bnbd/test_rig.h"
#include "trs/server.h"

namespace braid::bnbd::test {

/// What a fake server does, and what it saw. Belongs to the test: outlives a kill of the server.
struct FakeScript {
  FakeScript() {
    device.device_id = 7;
    device.size_bytes = 1 << 20;
    device.max_io_bytes = 64 << 10;
    device.max_discard_bytes = device.max_write_zeroes_bytes = 1 << 20;
    device.physical_block_bytes = device.logical_block_bytes = 4096;
    device.force_unit_access = device.write_cache = true;
    device.identity = "fake:1";
    content.resize(device.size_bytes);
  }
  wire::OpenedDevice device;
  std::vector<std::byte> content;
  uint8_t version = wire::kVersionMajor;
  int refuse_open_errno = 0;      // with words, as Braid's server does
  std::string hang_open;          // OPENs of this name get no answer
  std::string odd_open;           // OPENs of this name get physical blocks of 0 bytes
  bool hold_io = false;           // I/O gets no answer
  size_t answers_max = SIZE_MAX;  // to I/O; what comes later gets none
  base::Errc io_status = base::Errc::kOk;
  std::vector<wire::Io> seen;  // I/O in the order of its arrival
  unsigned opens = 0;
  wire::NewsList news;           // the answer to questions, until one has seen them
  bool odd_news = false;         // the answer is none
  uint64_t news_seen = 0;        // of the last question
  unsigned news_asked = 0;       // questions
  bool floods = false;           // raises a notice with each answer to such a question
  std::vector<uint32_t> closes;  // device ids
};

class FakeServer final : public Node, private trs::ServerUser {
 public:
  FakeServer(base::sim::SimHost& process, trs::ServerOptions options, FakeScript& fake)
      : Node(process, kServerIp, 1), script(fake) {
    options.listen = {kServerIp, kPort};
    options.reactors = reactor_list();
    trs::ServerUser& user = *this;
    transport = std::move(trs::Server::create(*device, std::move(options), user)).value();
  }
  /// Answers the OPENs that hung.
  void release_opens() {
    script.hang_open.clear();
    for (trs::ServerRequest* request : std::exchange(hung_, {})) answer_open(*request);
  }
  void raise_notices() {
    for (trs::ServerSession* session : transport->sessions()) {
      session->clear_notice();
      session->raise_notice();
    }
  }
  FakeScript& script;
  std::unique_ptr<trs::Server> transport;

 private:
  void session_opened(trs::ServerSession&) override {}
  void session_closed(trs::ServerSession&) override {}
  void request(trs::ServerRequest& request) override {
    switch (wire::request_type(request.user_header).value()) {
      case wire::MessageType::kSessionInfo:
        return session_info(request);
      case wire::MessageType::kOpen:
        return open(request);
      case wire::MessageType::kIo:
        return io(request);
      case wire::MessageType::kNews:
        return news(request);
      default:
        script.closes.push_back(wire::parse_close(request.user_header).value().device_id);
        return request.answer(base::Errc::kOk);
    }
  }
  template <typename T>
  static void put(trs::ServerRequest& request, const T& message) {
    ASSERT_GE(request.data.size(), sizeof(message));
    std::memcpy(request.data.data(), &message, sizeof(message));
    request.answer(base::Errc::kOk);
  }
  void session_info(trs::ServerRequest& request) {
    wire::SessionInfo answer;
    answer.version = script.version;
    answer.header.type = static_cast<uint16_t>(wire::MessageType::kSessionInfoAnswer);
    put(request, answer);
  }
  void news(trs::ServerRequest& request) {
    ASSERT_EQ(request.data.size(), wire::kNewsBytesMax);
    script.news_seen = wire::parse_news(request.user_header).value();
    ++script.news_asked;
    if (script.floods) raise_notices();
    if (script.news.newest != 0 && script.news_seen >= script.news.newest)
      script.news.items.clear();
    const auto answer = wire::make_news_answer(script.news);
    std::fill(request.data.begin(), request.data.end(), std::byte{0});
    std::copy(answer.begin(), answer.end(), request.data.begin());
    if (script.odd_news) request.data[0] = std::byte{99};
    request.answer(base::Errc::kOk);
  }
  void open(trs::ServerRequest& request) {
    ++script.opens;
    const std::string name = wire::parse_open(request.user_header).value().name;
    if (name == script.hang_open) return hung_.push_back(&request);
    answer_open(request);
  }
  void answer_open(trs::ServerRequest& request) {
    if (script.refuse_open_errno != 0) {
      return put(request, wire::make_refusal(script.refuse_open_errno, "the fake will not"));
    }
    const std::string name = wire::parse_open(request.user_header).value().name;
    wire::OpenedDevice device = script.device;
    device.device_id = id_of(name);
    wire::ExtendedOpenAnswer answer;
    answer.answer = wire::make_open_answer(device);
    answer.extension = wire::make_extension(device);
    if (name == script.odd_open) answer.answer.physical_block_bytes = uint16_t{0};
    put(request, answer);
  }
  void io(trs::ServerRequest& request) {
    wire::Io message;
    ASSERT_EQ(wire::parse_io(request.user_header, message), nullptr);
    script.seen.push_back(message);
    if (script.hold_io || script.seen.size() > script.answers_max) return;
    if (!known(message.device_id)) {
      return request.answer(base::Errc::kDisconnected);
    }
    if (request.data.size() > script.device.max_io_bytes) {
      return request.answer(base::Errc::kInvalid);
    }
    if (script.io_status == base::Errc::kOk && !request.data.empty()) {
      std::byte* const place = script.content.data() + message.sector * wire::kSectorBytes;
      if (request.direction == trs::Direction::kRead) {
        std::copy_n(place, request.data.size(), request.data.data());
      } else {
        std::copy(request.data.begin(), request.data.end(), place);
      }
    }
    request.answer(script.io_status);
  }

  /// The script's for the first name that asks, the next free one for others. A slash before a
  /// name is nothing to it, as to any server.
  uint32_t id_of(const std::string& name) {
    uint32_t& id = ids_[name.substr(std::min(name.find_first_not_of('/'), name.size()))];
    if (id != 0) return id;
    uint32_t free = script.device.device_id;
    while (known(free)) ++free;
    return id = free;
  }
  bool known(uint32_t id) const {
    return std::any_of(ids_.begin(), ids_.end(),
                       [&](const auto& each) { return each.second == id; });
  }

  std::map<std::string, uint32_t> ids_;  // by name
  std::vector<trs::ServerRequest*> hung_;
};

/// The installation with a fake in the server's place.
class FakeRig : public Rig {
 protected:
  explicit FakeRig(uint64_t seed = 1) : Rig(seed) {
    exports.transport.queue_depth = 128;  // enough for several admin permits
    start_fake();
  }
  void start_fake() {
    server_host = &server_machine.start_process("fake");
    auto node = std::make_unique<FakeServer>(*server_host, exports.transport, script);
    fake = node.get();
    server_host->run(std::move(node));
  }
  void restart_fake() {
    kill_server();
    start_fake();
  }

  FakeScript script;
  FakeServer* fake = nullptr;  // of the living process
};

}  // namespace braid::bnbd::test
