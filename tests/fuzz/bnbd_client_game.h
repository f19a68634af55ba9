// Hostile clients at the shipping export server, beside an honest one, whose data stays as it wrote
// it, and whose flushes vouch for what is durable. The input chooses requests, what the server's
// operator and its disks do, and what the hostile ones call themselves; at the end nothing is left
// of them.
#pragma once

#include "tests/fuzz/bnbd_honest_client.h"
#include "tests/fuzz/bnbd_hostile_acts.h"
#include "tests/fuzz/reached.h"

namespace braid::bnbd::two_party {

class ServerNode final : public Node {
 public:
  ServerNode(base::sim::SimHost& process, bool direct)
      : Node(process, kServerIp, 2, {.registrations_max = kRegistrationsMax}) {
    ExportServerOptions options;
    options.root = "/exports";
    options.direct = direct;
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

/// Hears of writers beside the honest one: its data is theirs, too, from then on. And of files that
/// could not be flushed before they were closed.
class WritersLog final : public base::LogSink {
 public:
  void write(base::LogLevel, std::string_view, std::string_view line) override {
    const bool opened = line.find(" opened 'honest' in mode ") != std::string_view::npos;
    const bool honest = line.find(std::string(" from ") + kHonestIp) != std::string_view::npos;
    heard |= opened && !honest && !line.ends_with(" ro");
    close_failed |= line.find(" cannot be made durable ") != std::string_view::npos;
  }
  bool heard = false;
  bool close_failed = false;
};

inline fuzz::Reached hostile_opened("a hostile client opens a device"),
    let_in_beside("another writer is let in beside the honest one"),
    flush_failed("a flush of the honest one fails"),
    close_failed("a file cannot be flushed before it is closed");

class ClientGame {
 public:
  /// `cached`: the server's files are in its kernel's cache.
  ClientGame(const Numbers& numbers, bool cached)
      : world_({.log_sink = writers_}), numbers_(numbers), hostile_(world_, numbers_) {
    base::sim::SimMachine& machine = world_.add_machine("server");
    world_.fabric().add_port(machine, kServerIp);
    disk_ = &machine.add_disk("/exports/honest", {.size_bytes = kDiskBytes});
    other_disk_ = &machine.add_disk("/exports/other", {.size_bytes = kDiskBytes});
    base::sim::SimHost& host = machine.start_process("server");
    auto node = std::make_unique<ServerNode>(host, !cached);
    server_ = node.get();
    host.run(std::move(node));
    honest_ = start<HonestClient>(world_, "honest", kHonestIp, numbers_.flag() ? 2 : 1);
    honest_->open(base::kNever);
    require(world_.run_until([this] { return honest_->tried; }, kSecond) && honest_->device,
            "the honest one is in");
    segments_ = host.segments();
    hostile_.add("hostile", kHostileIp);
    // Sessions of one name, to which the operator's word is for both.
    if (numbers_.odd(4)) hostile_.add(numbers_.flag() ? "honest" : "hostile", "10.0.0.4");
  }
  void play() {
    for (unsigned steps = 0; !numbers_.empty() && steps < 400; ++steps) step();
    end();
  }

 private:
  void step() {
    switch (numbers_.below(16)) {
      case 0:
        return hostile_.open();
      case 1:
        return hostile_.ask_for_version();
      case 2:
      case 3:
      case 4:
      case 5:
        return hostile_.io();
      case 6:
        return hostile_.close();
      case 7:
        return hostile_.anything();
      case 8:
        return honest_works();
      case 9:
        return hostile_.ask_for_news();
      case 10:
        return operate();
      case 11:
        return honest_writes_through();
      case 12:
        return honest_flushes();
      case 13:
        return numbers_.flag() ? others_flush_fails() : disk_hangs();
      default:
        return pass_time(world_, numbers_);
    }
  }

  // --- the server's operator

  void operate() {
    const uint32_t what = numbers_.below(256);
    const uint64_t size_bytes = kBlockBytes * (1ull + numbers_.below(48));
    server_->home().post([this, what = what < 192 ? what % 4 : 4, size_bytes] {
      ExportServer& server = *server_->server;
      if (what == 4) {  // that of the honest one: smaller than it knows would be another to it
        honest_bytes_ = std::max(honest_bytes_, kDiskBytes + size_bytes);
        server_->home().spawn(resize(server, "honest", honest_bytes_));
      } else if (what < 2) {
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

  // --- the server's disks

  /// That of the hostile ones; for a while, as no export server can end before its disks.
  void disk_hangs() {
    other_disk_->faults.stalled_until_ns =
        world_.now_ns() + numbers_.below(32) * 100 * kMillisecond;
    other_disk_->faults.stalls_some = numbers_.flag();
  }
  /// A flush by another than the honest one, whose writes it covers, if it has got the export.
  void others_flush_fails() {
    disk_->faults.errors_per_million = 1'000'000;
    hostile_.flush();
    world_.run_for(kMillisecond);
    disk_->faults.errors_per_million = 0;
  }

  // --- the honest one

  /// Others have been let in to write: beside it, for a migration, or while its path was away; also
  /// in the midst of what it does.
  bool gone() const { return writers_->heard; }
  void honest_works() {
    if (gone()) return;
    const size_t block = numbers_.below(kDiskBytes / kBlockBytes);
    write(block);
    check(block);
  }
  void write(size_t block) {
    honest_does(BlockOp::kWrite, block, ++stamp_);
    if (gone()) return;
    require(honest_->status == Errc::kOk, "it is served well");
    written_[block] = stamp_;
    lost_[block] = false;
  }
  void check(size_t block) {
    honest_does(BlockOp::kRead, block, 0xee);
    if (gone()) return;
    require(honest_->status == Errc::kOk, "it is served well");
    const auto as_written = [this, block](std::byte b) {
      return b == static_cast<std::byte>(written_[block]);
    };
    require(std::all_of(honest_->memory.begin(), honest_->memory.begin() + kBlockBytes, as_written),
            "the honest client reads what it wrote");
  }
  void honest_does(BlockOp op, size_t block, int fill) {
    submit(op, block, fill);
    require(world_.run_until([this] { return honest_->idle(); }, kSecond), "it is served in time");
  }
  void submit(BlockOp op, size_t block, int fill) {
    if (honest_->reactors.size() > 1) honest_->on_reactor = numbers_.below(2);
    const bool ranged = op != BlockOp::kFlush;
    honest_->submit(op, ranged ? block * kBlockBytes : 0, ranged ? kBlockBytes : 0, fill);
  }
  bool is_durable(size_t block) const {
    const auto bytes = disk_->durable().subspan(block * kBlockBytes, kBlockBytes);
    return std::all_of(bytes.begin(), bytes.end(), [this, block](std::byte b) {
      return b == static_cast<std::byte>(written_[block]);
    });
  }
  void honest_writes_through() {
    if (gone()) return;
    const size_t block = numbers_.below(kDiskBytes / kBlockBytes);
    honest_->io.force_unit_access = true;
    honest_does(BlockOp::kWrite, block, ++stamp_);
    honest_->io.force_unit_access = false;
    if (gone()) return;
    written_[block] = stamp_;
    lost_[block] = false;
    if (honest_->status != Errc::kOk) return write(block);  // another's flush failed beside it
    require(is_durable(block), "a durable write is durable when it ends");
  }
  /// Perhaps the disk fails it, or the path is lost while it is under way.
  void honest_flushes() {
    if (gone()) return;
    const bool fails = numbers_.odd(2), drops = numbers_.odd(4);
    if (fails) disk_->faults.errors_per_million = 1'000'000;
    submit(BlockOp::kFlush, 0, 0);
    if (fails || drops) world_.run_for(numbers_.next<uint8_t>() * 2 * kMicrosecond);
    if (drops) {
      honest_->session->drop_path("the input says so");
      honest_->home().wake();
    }
    if (fails) world_.run_for(kMillisecond);
    disk_->faults.errors_per_million = 0;
    const auto ended = [this] {
      return honest_->idle() && honest_->device->state() == RemoteState::kOpen;
    };
    const bool well = world_.run_until(ended, 5 * kSecond);
    if (gone()) return;
    require(well, "a flush ends");
    judge_flush();
  }
  void judge_flush() {
    const bool well = honest_->status == Errc::kOk;
    flush_failed.count(!well);
    for (size_t block = 0; block < written_.size(); ++block) {
      if (is_durable(block)) continue;
      require(!well || lost_[block], "a flush vouches for what is durable");
      lost_[block] = true;
    }
  }
  /// It is told of each failure by each of its connections, and then no more.
  void flushes_end_well() {
    for (unsigned tries = 0; tries < 4; ++tries) {
      honest_does(BlockOp::kFlush, 0, 0);
      if (gone()) return;
      judge_flush();
      if (honest_->status == Errc::kOk) return;
    }
    require(false, "flushes end well again");
  }

  // --- the end

  void end() {
    for (const ExportStatus& each : server_->server->exports())
      hostile_opened.count(each.name != "honest" && !each.holders.empty());
    let_in_beside.count(gone());
    if (!gone()) honest_ends();
    hostile_.end();
    const auto alone = [this] { return server_->server->sessions().size() <= 1; };
    require(world_.run_until(alone, 20 * kSecond), "its session is gone");
    const auto one_holder = [this] {
      size_t holders = 0;
      for (const ExportStatus& each : server_->server->exports()) holders += each.holders.size();
      return holders <= 1;
    };
    require(world_.run_until(one_holder, 20 * kSecond), "and what it held");
    const auto none_is_left = [this] {  // as a disk that hangs may still flush it to be closed
      for (const ExportStatus& each : server_->server->exports())
        if (each.kind == "file" && each.holders.empty()) return false;
      return true;
    };
    require(world_.run_until(none_is_left, 20 * kSecond), "what nobody has is closed");
    close_failed.count(writers_->close_failed);
    const auto memory_is_back = [this] {
      const size_t now = server_->host.segments();
      return now == segments_ || (gone() && now < segments_);
    };
    require(world_.run_until(memory_is_back, kSecond), "and the memory that it took");
    // A server waits a second for its disks, and says that it cannot stop.
    const auto answers = [this] {
      return world_.now_ns() > other_disk_->faults.stalled_until_ns + kMillisecond;
    };
    require(world_.run_until(answers, 20 * kSecond), "the disk answers");
    honest_->close();
    require(world_.run_until([this] { return honest_->closed; }, 20 * kSecond), "closing ends");
    bool stopped = false;
    server_->home().post([&] { server_->home().spawn(stop(*server_->server, stopped)); });
    server_->home().wake();
    require(world_.run_until([&stopped] { return stopped; }, 20 * kSecond), "the server stops");
    require(world_.fabric().open_ends().empty(), "no connection is left");
  }
  void honest_ends() {
    honest_works();
    for (size_t block = 0; block < written_.size(); ++block) check(block);
    flushes_end_well();
    const auto knows = [this] { return gone() || knows_its_size(); };
    require(world_.run_until(knows, kSecond), "it hears of its size");
  }
  bool knows_its_size() const {
    for (const ExportStatus& each : server_->server->exports()) {
      if (each.name == "honest") return honest_->device->info().size_bytes == each.info.size_bytes;
    }
    return false;
  }
  static Task<void> stop(ExportServer& server, bool& stopped) {
    const base::Status status = co_await server.stop();
    require(status.ok(), "no disk is left with a request");
    stopped = true;
  }

  const std::shared_ptr<WritersLog> writers_ = std::make_shared<WritersLog>();
  base::sim::SimWorld world_;
  Numbers numbers_;
  ServerNode* server_ = nullptr;
  base::sim::SimDisk* disk_ = nullptr;        // of the honest one
  base::sim::SimDisk* other_disk_ = nullptr;  // of the others
  HonestClient* honest_ = nullptr;
  HostileActs hostile_;
  size_t segments_ = 0;
  uint64_t honest_bytes_ = kDiskBytes;  // of its device
  uint8_t stamp_ = 0;
  std::array<uint8_t, kDiskBytes / kBlockBytes> written_{};  // by the honest one, by block
  std::array<bool, kDiskBytes / kBlockBytes> lost_{};        // and it knows
};

}  // namespace braid::bnbd::two_party
