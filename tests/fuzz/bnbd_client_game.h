// A hostile client at the shipping export server, beside an honest one, whose data stays as it
// wrote it. The input chooses requests, and what the server's operator does; at the end nothing is
// left of the hostile one.
#pragma once

#include "tests/fuzz/bnbd_honest_client.h"
#include "tests/fuzz/bnbd_hostile_client.h"

namespace braid::bnbd::two_party {

class ServerNode final : public Node {
 public:
  explicit ServerNode(base::sim::SimHost& process)
      : Node(process, kServerIp, 2, kRegistrationsMax) {
    ExportServerOptions options;
    options.root = "/exports";
    options.named = {{NamedExport::Kind::kMemory, "ram", 64 << 10}};
    options.transport.listen = {kServerIp, kPort};
    options.transport.reactors = reactor_list();
    options.transport.queue_depth = kQueueDepth;
    options.transport.max_io_bytes = kMaxIoBytes;
    options.stop_patience_ns = kSecond;
    server = std::move(ExportServer::create(*device, std::move(options))).value();
  }
  std::unique_ptr<ExportServer> server;
};

class ClientGame {
 public:
  explicit ClientGame(const Numbers& numbers) : world_({}), numbers_(numbers) {
    base::sim::SimMachine& machine = world_.add_machine("server");
    world_.fabric().add_port(machine, kServerIp);
    machine.add_disk("/exports/honest", {.size_bytes = kDiskBytes});
    machine.add_disk("/exports/other", {.size_bytes = kDiskBytes});
    base::sim::SimHost& host = machine.start_process("server");
    auto node = std::make_unique<ServerNode>(host);
    server_ = node.get();
    host.run(std::move(node));
    honest_ = start<HonestClient>(world_, "honest", kHonestIp);
    honest_->open(base::kNever);
    require(world_.run_until([this] { return honest_->tried; }, kSecond) && honest_->device,
            "the honest one is in");
    segments_ = host.segments();
    hostile_ = start<HostileClient>(world_, "hostile", kHostileIp);
    hostile_->open();
    require(world_.run_until([this] { return hostile_->opened; }, kSecond) && hostile_->session,
            "TRS takes whoever keeps its rules");
  }
  void play() {
    for (unsigned steps = 0; !numbers_.empty() && steps < 400; ++steps) step();
    end();
  }

 private:
  void step() {
    switch (numbers_.below(12)) {
      case 0:
        return open();
      case 1:
        return send(trs::Direction::kRead, numbers_.bent(to_bytes(session_info())), 36);
      case 2:
      case 3:
      case 4:
      case 5:
        return io();
      case 6:
        return close();
      case 7:
        return anything();
      case 8:
        return honest_works();
      case 9:
        return ask_for_news();
      case 10:
        return operate();
      default:
        return pass_time(world_, numbers_);
    }
  }

  // --- the hostile one

  wire::SessionInfo session_info() {
    wire::SessionInfo info;
    info.version = static_cast<uint8_t>(numbers_.below(4));
    return info;
  }
  void send(trs::Direction direction, std::vector<std::byte> header, uint32_t data_bytes) {
    (void)hostile_->submit(direction, std::move(header), data_bytes);
    if (!numbers_.odd(4)) world_.run_for(200 * kMicrosecond);
  }
  void anything() {
    const auto direction = numbers_.flag() ? trs::Direction::kRead : trs::Direction::kWrite;
    const std::vector<std::byte> header = numbers_.take(numbers_.next<uint16_t>() % 300);
    send(direction, header, numbers_.next<uint16_t>() % (kMaxIoBytes + 1));
  }
  void open() {
    static constexpr std::array kNames = {"other", "ram", "honest", "none", "../exports/honest"};
    auto made = wire::make_open(kNames[numbers_.below(kNames.size())],
                                static_cast<wire::AccessMode>((numbers_.below(3) + 1) % 3));
    if (!made.ok()) return;
    std::vector<std::byte> message = to_bytes(*made);
    if (numbers_.flag()) {
      const uint64_t tenure = numbers_.flag() ? numbers_.next<uint64_t>() : 0;
      message = to_bytes(wire::make_claim(*made, tenure, numbers_.flag()));
    }
    send(trs::Direction::kRead, numbers_.bent(message), numbers_.odd(4) ? 56 : 520);
    world_.run_for(500 * kMicrosecond);
    wire::OpenAnswer answer;
    std::memcpy(&answer, hostile_->memory.data(), sizeof(answer));
    if (uint32_t{answer.device_id} != 0) device_id_ = answer.device_id;  // its own, if it is in
  }
  void close() {
    wire::Close message;
    message.header.type = uint16_t{5};
    message.device_id = numbers_.odd(4) ? numbers_.next<uint32_t>() : device_id_;
    send(trs::Direction::kWrite, numbers_.bent(to_bytes(message)), 0);
  }
  void ask_for_news() {
    const wire::News message = wire::make_news(numbers_.next<uint8_t>());
    send(trs::Direction::kRead, numbers_.bent(to_bytes(message)), wire::kNewsBytesMax);
  }
  void io() {
    wire::Io message;
    message.header.type = uint16_t{4};
    message.device_id = device_id_;
    message.sector = 8u * numbers_.below(40) + (numbers_.odd(4) ? numbers_.below(8) : 0);
    const uint32_t operation = (numbers_.below(6) + 1) % 6;
    message.operation_flags = operation | uint32_t{numbers_.next<uint16_t>()} << 8;
    message.length_bytes = numbers_.odd(4) ? 512u * numbers_.below(20) : kBlockBytes;
    uint32_t data_bytes = operation < 2 ? uint32_t{message.length_bytes} : 0;
    if (numbers_.odd(8)) data_bytes = numbers_.next<uint16_t>();
    send(operation == 0 ? trs::Direction::kRead : trs::Direction::kWrite,
         numbers_.bent(to_bytes(message)), std::min(data_bytes, kMaxIoBytes));
  }

  // --- the server's operator

  void operate() {
    const uint32_t what = numbers_.below(4);
    const uint64_t size_bytes = kBlockBytes * (1ull + numbers_.below(48));
    server_->home().post([this, what, size_bytes] {
      ExportServer& server = *server_->server;
      if (what < 2) {
        server_->home().spawn(resize(server, what == 0 ? "other" : "ram", size_bytes));
      } else {
        (void)server.force_close({.export_name = what == 2 ? "other" : "", .session = "hostile"});
      }
    });
    server_->home().wake();
    world_.run_for(100 * kMicrosecond);
  }
  static Task<void> resize(ExportServer& server, std::string name, uint64_t size_bytes) {
    (void)co_await server.resize(std::move(name), size_bytes, true);
  }

  // --- the honest one

  void honest_works() {
    const size_t block = numbers_.below(kDiskBytes / kBlockBytes);
    honest_does(BlockOp::kWrite, block, ++stamp_);
    written_[block] = stamp_;
    check(block);
  }
  void check(size_t block) {
    honest_does(BlockOp::kRead, block, 0xee);
    const auto as_written = [this, block](std::byte b) {
      return b == static_cast<std::byte>(written_[block]);
    };
    require(std::all_of(honest_->memory.begin(), honest_->memory.begin() + kBlockBytes, as_written),
            "the honest client reads what it wrote");
  }
  void honest_does(BlockOp op, size_t block, int fill) {
    honest_->submit(op, block * kBlockBytes, kBlockBytes, fill);
    require(world_.run_until([this] { return honest_->idle(); }, kSecond), "it is served in time");
    require(honest_->status == Errc::kOk, "and well");
  }

  // --- the end

  void end() {
    honest_works();
    for (size_t block = 0; block < written_.size(); ++block) check(block);
    hostile_->close();
    require(world_.run_until([this] { return hostile_->closed; }, 20 * kSecond), "it closes");
    require(hostile_->all_ended_once(), "each request of the hostile one has ended");
    const auto alone = [this] { return server_->server->sessions().size() == 1; };
    require(world_.run_until(alone, 20 * kSecond), "its session is gone");
    const auto one_holder = [this] {
      size_t holders = 0;
      for (const ExportStatus& each : server_->server->exports()) holders += each.holders.size();
      return holders == 1;
    };
    require(world_.run_until(one_holder, 20 * kSecond), "and what it held");
    require(world_.run_until([this] { return server_->host.segments() == segments_; }, kSecond),
            "and the memory that it took");
    honest_->close();
    require(world_.run_until([this] { return honest_->closed; }, 20 * kSecond), "closing ends");
    bool stopped = false;
    server_->home().post([&] { server_->home().spawn(stop(*server_->server, stopped)); });
    server_->home().wake();
    require(world_.run_until([&stopped] { return stopped; }, 20 * kSecond), "the server stops");
    require(world_.fabric().open_ends().empty(), "no connection is left");
  }
  static Task<void> stop(ExportServer& server, bool& stopped) {
    const base::Status status = co_await server.stop();
    require(status.ok(), "no disk is left with a request");
    stopped = true;
  }

  base::sim::SimWorld world_;
  Numbers numbers_;
  ServerNode* server_ = nullptr;
  HonestClient* honest_ = nullptr;
  HostileClient* hostile_ = nullptr;
  size_t segments_ = 0;
  uint32_t device_id_ = 0;
  uint8_t stamp_ = 0;
  std::array<uint8_t, kDiskBytes / kBlockBytes> written_{};  // by the honest one, by block
};

}  // namespace braid::bnbd::two_party
