// For tests of the server: a peer that speaks TRS well, and whatever a test wants of BNBD.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bnbd/test_rig.h"

namespace braid::bnbd::test {

class RawPeerRig : public ServedRig, private trs::SessionUser {
 protected:
  explicit RawPeerRig(size_t reactors = 1) : ServedRig(reactors) {
    base::sim::SimMachine& machine = world.add_machine("raw");
    world.fabric().add_port(machine, "10.0.2.1");
    base::sim::SimHost& host = machine.start_process("raw");
    auto node = std::make_unique<RawNode>(host, "10.0.2.1", 1);
    raw = node.get();
    host.run(std::move(node));
    raw->domain = std::move(trs::Domain::create(*raw->device)).value();
    raw->memory = std::move(host.create_segment(64 << 10, "test")).value();
    raw->mr =
        std::move(raw->domain->register_memory(raw->memory->data(), 64 << 10,
                                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE))
            .value();
    trs::ClientOptions options;
    options.session_name = "raw";
    options.server = {kServerIp, kPort};
    options.reactors = raw->reactor_list();
    trs::SessionUser& user = *this;
    auto opened = await(*raw, trs::ClientSession::open(*raw->domain, std::move(options), user));
    EXPECT_TRUE(opened.ok());
    raw->session = std::move(opened).value();
  }

  struct RawNode : Node {
    using Node::Node;
    std::unique_ptr<trs::Domain> domain;
    std::unique_ptr<base::Segment> memory;
    std::unique_ptr<vhca::Mr> mr;
    std::unique_ptr<trs::ClientSession> session;
  };
  base::Task<base::Status> reconnected() override { co_return base::ok_status(); }
  void disconnected(const base::Error&) override { ++disconnects; }

  trs::DataBuffer buffer(uint32_t length) {
    return {length == 0 ? nullptr : raw->mr.get(), raw->memory->data(), length};
  }
  /// A request on an I/O connection: any bytes as user header, any length of data.
  base::Errc send(trs::Direction direction, std::span<const std::byte> header, uint32_t length) {
    trs::ClientRequest request;
    std::optional<base::Errc> status;
    request.direction = direction;
    request.user_header = header;
    request.data = buffer(length);
    request.context = &status;
    request.done = [](trs::ClientRequest& r, base::Errc s) {
      static_cast<std::optional<base::Errc>*>(r.context)->emplace(s);
    };
    raw->home().post([&] {
      request.permit = raw->session->queue(0).acquire();
      raw->session->queue(0).submit(request);
    });
    EXPECT_TRUE(until([&] { return status.has_value(); }));
    return *status;
  }
  base::Errc admin(trs::Direction direction, std::span<const std::byte> header, uint32_t length) {
    trs::AdminRequest request;
    request.what = "raw request";
    request.direction = direction;
    request.user_header = header;
    request.data = {raw->memory->data(), length};
    auto answer = await(*raw, raw->session->admin(request));
    return answer.ok() ? *answer : answer.code();
  }
  wire::Io io(uint32_t id, wire::Operation operation, uint64_t sector, uint32_t length,
              uint32_t flags = 0) {
    wire::Io message;
    message.header.type = uint16_t{4};
    message.device_id = id;
    message.sector = sector;
    message.operation_flags = static_cast<uint32_t>(operation) | flags;
    message.length_bytes = length;
    return message;
  }
  base::Errc send_io(trs::Direction direction, const wire::Io& message, uint32_t length) {
    return send(direction, wire::bytes_of(message), length);
  }
  /// Opens as a peer without Braid's extension would.
  uint32_t open_plain(const std::string& name, wire::AccessMode mode) {
    auto message = wire::make_open(name, mode);
    EXPECT_EQ(admin(trs::Direction::kRead, wire::bytes_of(*message), 56), base::Errc::kOk);
    auto opened = wire::parse_open_answer(std::span(raw->memory->data(), 56));
    EXPECT_TRUE(opened.ok());
    return opened.ok() ? opened->device_id : 0;
  }

  RawNode* raw = nullptr;
  int disconnects = 0;
};

}  // namespace braid::bnbd::test
