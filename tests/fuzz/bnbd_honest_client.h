// For both games of BNBD: the installation's addresses and sizes, and the shipping client, with one
// device, and by itself one request at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bnbd/test_rig.h"
#include "tests/fuzz/two_party.h"

namespace braid::bnbd::two_party {

using base::Errc;
using base::kMicrosecond;
using base::kMillisecond;
using base::kSecond;
using base::Task;
using fuzz::disturb;
using fuzz::Numbers;
using fuzz::pass_time;
using fuzz::require;
using fuzz::start;
using fuzz::to_bytes;
using test::kPort;
using test::kServerIp;
using test::Node;

inline constexpr const char* kHonestIp = "10.0.0.2";
inline constexpr const char* kHostileIp = "10.0.0.3";
inline constexpr uint64_t kDiskBytes = 128 << 10;
inline constexpr uint32_t kBlockBytes = 4096;
inline constexpr uint32_t kMaxIoBytes = 8192;
inline constexpr uint32_t kQueueDepth = 8;
inline constexpr uint32_t kRegistrationsMax = 512;

/// The shipping client: one device; one request at a time by submit().
class HonestClient final : public Node {
 public:
  static constexpr size_t kPlaces = 4;  // of kMaxIoBytes, in its memory

  explicit HonestClient(base::sim::SimHost& process, size_t reactor_count = 1)
      : Node(process, kHonestIp, reactor_count, {.registrations_max = kRegistrationsMax}) {}
  void open(uint64_t give_up_after_ns) {
    home().spawn(open_task(give_up_after_ns));
    home().wake();
  }
  void close() {
    home().spawn(close_task());
    home().wake();
  }
  void submit(BlockOp op, uint64_t offset, uint32_t length, int fill) {
    status.reset();
    ++submitted;
    io.op = op;
    io.offset_bytes = offset;
    io.length_bytes = length;
    io.buffer = buffer(0);
    io.context = this;
    io.done = [](BlockRequest& request, Errc how) {
      auto& self = *static_cast<HonestClient*>(request.context);
      self.status = how;
      ++self.completions;
    };
    std::fill_n(io.buffer.address, length, static_cast<std::byte>(fill));
    const BlockQueue queue = device->queues().at(on_reactor);
    queue.reactor->post([this, to = queue.device] { to->submit(io); });
    queue.reactor->wake();
  }
  /// In its region, if it uses that.
  BufferRef buffer(size_t place) {
    return {region.get(), (region ? region->data() : memory.data()) + place};
  }
  bool idle() const { return completions == submitted; }

  BlockRequest io;
  std::vector<std::byte> memory = std::vector<std::byte>(kPlaces * kMaxIoBytes);
  std::optional<Errc> status;
  unsigned submitted = 0, completions = 0;
  bool tried = false, closed = false;
  bool uses_region = false;  // of the device, instead of `memory`
  size_t on_reactor = 0;     // where submit() submits
  uint64_t lost_after_ns = base::kNever;
  std::unique_ptr<RemoteSession> session;
  std::unique_ptr<RemoteDevice> device;
  std::unique_ptr<Region> region;  // goes before it

 private:
  Task<void> open_task(uint64_t give_up_after_ns) {
    RemoteSessionOptions options;
    options.transport.session_name = "honest";
    options.transport.server = {kServerIp, kPort};
    options.transport.reactors = reactor_list();
    options.transport.admin_timeout_ns = kSecond;
    options.open_patience_ns = 2 * kSecond;
    options.touch_buffers = false;  // takes time only
    options.reopen_delay_ns = 100 * kMillisecond;
    options.news_interval_ns = 50 * kMillisecond;
    options.close_patience_ns = 2 * kSecond;
    options.copy_pool_bytes = 32 << 10;
    auto opened = co_await RemoteSession::open(*Node::device, options);
    if (opened.ok()) {
      session = std::move(*opened);
      RemoteDeviceOptions wanted;
      wanted.name = "honest";
      wanted.give_up_after_ns = give_up_after_ns;
      wanted.max_io_bytes = kMaxIoBytes;
      wanted.lost_after_ns = lost_after_ns;
      auto its = co_await session->open_device(wanted);
      if (its.ok()) device = std::move(*its);
      if (device && uses_region)
        region = std::move(device->create_region(kPlaces * kMaxIoBytes)).value();
    }
    tried = true;
  }
  Task<void> close_task() {
    if (device) co_await device->close();
    region.reset();
    device.reset();
    if (session) co_await session->close();
    session.reset();
    closed = true;
  }
};

}  // namespace braid::bnbd::two_party
