// What the hostile clients of a BNBD server do, as the input has it: requests of each kind, bent
// here and there, and any others.
#pragma once

#include "tests/fuzz/bnbd_hostile_client.h"

namespace braid::bnbd::two_party {

/// Draws stand in statements of their own: compilers differ in the order of arguments.
class HostileActs {
 public:
  HostileActs(base::sim::SimWorld& world, Numbers& numbers) : world_(world), numbers_(numbers) {}
  void add(const char* name, const char* ip) {
    HostileClient* const its = start<HostileClient>(world_, ip, ip, ip, name);
    clients_.push_back(its);
    its->open();
    require(world_.run_until([its] { return its->opened; }, kSecond) && its->session,
            "TRS takes whoever keeps its rules");
  }
  void ask_for_version() {
    wire::SessionInfo info;
    info.version = static_cast<uint8_t>(numbers_.below(4));
    HostileClient& by = next();
    send(by, trs::Direction::kRead, numbers_.bent(to_bytes(info)), 36);
  }
  void anything() {
    const auto direction = numbers_.flag() ? trs::Direction::kRead : trs::Direction::kWrite;
    const std::vector<std::byte> header = numbers_.take(numbers_.next<uint16_t>() % 300);
    const uint32_t data_bytes = numbers_.next<uint16_t>() % (kMaxIoBytes + 1);
    send(next(), direction, header, data_bytes);
  }
  void open() {
    static constexpr std::array kNames = {"other", "ram", "honest", "none", "../exports/honest"};
    const char* const name = kNames[numbers_.below(kNames.size())];
    auto made = wire::make_open(name, static_cast<wire::AccessMode>((numbers_.below(3) + 1) % 3));
    if (!made.ok()) return;
    std::vector<std::byte> message = to_bytes(*made);
    if (numbers_.flag()) {
      const uint64_t tenure = numbers_.flag() ? numbers_.next<uint64_t>() : 0;
      message = to_bytes(wire::make_claim(*made, tenure, numbers_.flag()));
    }
    HostileClient& by = next();
    const uint32_t answer_bytes = numbers_.odd(4) ? 56 : 520;
    send(by, trs::Direction::kRead, numbers_.bent(message), answer_bytes);
    world_.run_for(500 * kMicrosecond);
    wire::OpenAnswer answer;
    std::memcpy(&answer, by.memory.data(), sizeof(answer));
    if (uint32_t{answer.device_id} != 0) by.device_id = answer.device_id;  // its own, if it is in
  }
  void close() {
    wire::Close message;
    message.header.type = uint16_t{5};
    HostileClient& by = next();
    message.device_id = numbers_.odd(4) ? numbers_.next<uint32_t>() : by.device_id;
    send(by, trs::Direction::kWrite, numbers_.bent(to_bytes(message)), 0);
  }
  void ask_for_news() {
    const wire::News message = wire::make_news(numbers_.next<uint8_t>());
    HostileClient& by = next();
    send(by, trs::Direction::kRead, numbers_.bent(to_bytes(message)), wire::kNewsBytesMax);
  }
  void io() {
    wire::Io message;
    message.header.type = uint16_t{4};
    HostileClient& by = next();
    message.device_id = by.device_id;
    message.sector = 8u * numbers_.below(40) + (numbers_.odd(4) ? numbers_.below(8) : 0);
    const uint32_t operation = (numbers_.below(6) + 1) % 6;
    message.operation_flags = operation | uint32_t{numbers_.next<uint16_t>()} << 8;
    message.length_bytes = numbers_.odd(4) ? 512u * numbers_.below(20) : kBlockBytes;
    uint32_t data_bytes = operation < 2 ? uint32_t{message.length_bytes} : 0;
    if (numbers_.odd(8)) data_bytes = numbers_.next<uint16_t>();
    send(by, operation == 0 ? trs::Direction::kRead : trs::Direction::kWrite,
         numbers_.bent(to_bytes(message)), std::min(data_bytes, kMaxIoBytes));
  }
  /// As it should be.
  void flush() {
    wire::Io message;
    HostileClient& by = next();
    message.header.type = uint16_t{4};
    message.device_id = by.device_id;
    message.operation_flags = static_cast<uint32_t>(wire::Operation::kFlush);
    send(by, trs::Direction::kWrite, to_bytes(message), 0);
  }
  /// Each ends, whatever it has under way, and each of its requests once.
  void end() {
    for (HostileClient* const each : clients_) {
      each->close();
      require(world_.run_until([each] { return each->closed; }, 20 * kSecond), "it closes");
      require(each->all_ended_once(), "each request of a hostile one has ended");
    }
  }

 private:
  /// The one that acts.
  HostileClient& next() { return *clients_[clients_.size() == 1 ? 0 : numbers_.below(2)]; }
  void send(HostileClient& by, trs::Direction direction, std::vector<std::byte> header,
            uint32_t data_bytes) {
    (void)by.submit(direction, std::move(header), data_bytes);
    if (!numbers_.odd(4)) world_.run_for(200 * kMicrosecond);
  }

  base::sim::SimWorld& world_;
  Numbers& numbers_;
  std::vector<HostileClient*> clients_;
};

}  // namespace braid::bnbd::two_party
