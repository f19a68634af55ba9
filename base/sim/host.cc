#include "base/sim/host.h"

#include <fmt/format.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/reactor.h"
#include "base/sim/fabric_impl.h"
#include "base/sim/io_queue.h"
#include "base/sim/stream.h"
#include "base/sim/world.h"

namespace braid::base::sim {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr uint64_t kWallClockAtStartNs = 1'750'000'000 * kSecond;  // some day in 2025

/// Zeroes that take no memory before they are touched, if they are many, as a kernel gives them:
/// servers have segments by the thousand of which they touch little.
class SegmentMemory final : public SimObject {
 public:
  explicit SegmentMemory(size_t size_bytes)
      : size(size_bytes), zeroes_(static_cast<std::byte*>(std::calloc(1, all_bytes()))) {
    BRAID_ASSERT(zeroes_ != nullptr);
    void* at = zeroes_;
    size_t room = all_bytes();
    bytes = static_cast<std::byte*>(std::align(kPageBytes, size, at, room));
    // What lies around them is nobody's: the address sanitizer is to say so.
    const auto ahead_bytes = static_cast<size_t>(bytes - zeroes_);
    ASAN_POISON_MEMORY_REGION(zeroes_, ahead_bytes);
    ASAN_POISON_MEMORY_REGION(bytes + size, all_bytes() - ahead_bytes - size);
  }
  ~SegmentMemory() override {
    ASAN_UNPOISON_MEMORY_REGION(zeroes_, all_bytes());
    std::free(zeroes_);
  }
  SegmentMemory(const SegmentMemory&) = delete;
  SegmentMemory& operator=(const SegmentMemory&) = delete;

  const size_t size;  // of whole pages
  std::byte* bytes = nullptr;

 private:
  size_t all_bytes() const { return size + kPageBytes; }
  std::byte* const zeroes_;
};

}  // namespace

class SimSegment final : public Segment {
 public:
  SimSegment(SimHost* creator, std::shared_ptr<SegmentMemory> memory)
      : creator_(creator), memory_(memory), handle_(std::move(memory)) {
    if (creator_ != nullptr) creator_->segments_.push_back(this);
  }
  ~SimSegment() override {
    if (creator_ != nullptr) std::erase(creator_->segments_, this);
  }
  std::byte* data() const override { return memory_->bytes; }
  size_t size() const override { return memory_->size; }
  const Handle& handle() const override { return handle_; }

 private:
  SimHost* const creator_;  // null for a mapping of another's
  std::shared_ptr<SegmentMemory> memory_;
  SimHandle handle_;
};

SimHost::SimHost(SimMachine& machine, std::string name)
    : machine_(machine),
      name_(std::move(name)),
      process_id_(machine.world().next_process_id()),
      random_(machine.world().random().fork()),
      log_(machine.world().options().log_sink, fmt::format("{}.{}", machine.name(), name_),
           machine.world().options().log_level) {
  disturbed_ns_ = world().now_ns();
}

SimHost::~SimHost() {
  if (!dead_) kill(true);
}

SimFabric& SimHost::fabric() {
  return world().fabric();
}

void SimHost::run(std::unique_ptr<SimProgram> program) {
  BRAID_ASSERT(!dead_ && program_ == nullptr);
  program_ = std::move(program);
}

void SimHost::drive(Reactor& reactor) {
  static_cast<SimIoQueue&>(reactor.io()).slot().drive(reactor);
}

void SimHost::kill(bool silent) {
  BRAID_ASSERT(!dead_);
  for (const auto& slot : slots_) BRAID_ASSERT(!slot->turning());
  dead_ = true;
  cut_ = world().random().between(turn_began_at_send_, sends_);
  if (!silent) ++world().counters().kills;
  for (const auto& slot : slots_)
    if (slot->queue != nullptr) slot->queue->abandon_all();
  for (const auto& slot : slots_)
    if (slot->reactor() != nullptr) slot->reactor()->forget_messages();
  process_died(world().fabric(), *this, silent);
  work_.clear();
  program_.reset();
}

void SimHost::pause() {
  if (dead_ || paused_) return;
  paused_ = true;
  ++world().counters().pauses;
}

void SimHost::resume() {
  if (dead_ || !std::exchange(paused_, false)) return;
  disturbed_ns_ = world().now_ns();
  for (const auto& slot : slots_) slot->resume();
  for (const uint64_t id : std::exchange(deferred_work_, {})) run_work(id);
}

void SimHost::hang(Reactor& reactor) {
  set_hung(reactor, true);
}

void SimHost::unhang(Reactor& reactor) {
  set_hung(reactor, false);
}

void SimHost::set_hung(Reactor& reactor, bool on) {
  for (const auto& slot : slots_) {
    if (slot->drives(reactor)) slot->hang(on);
  }
}

void SimHost::hang_reactor(size_t index, uint64_t duration_ns) {
  disturbed_ns_ = world().now_ns() + duration_ns;
  slots_.at(index)->delay_until(disturbed_ns_);
}

void SimHost::run_short(const SimShortage& shortage) {
  BRAID_ASSERT(shortage.refused_in > 0);
  shortage_.emplace(Shortage{shortage, SimRandom(shortage.seed)});
}

Status SimHost::refuse_if(bool short_of, int sys_errno, std::string_view what) {
  if (!short_of || !shortage_->random.one_in(shortage_->what.refused_in)) return ok_status();
  ++refusals_;
  Error why = sys_error(sys_errno, what);
  ++refused_[why.message()];
  return why;
}

Status SimHost::adapter_memory(std::string_view what) {
  return refuse_if(shortage_ && shortage_->what.memory, ENOMEM,
                   fmt::format("no memory for {}", what));
}

Status SimHost::descriptor(std::string_view what) {
  BRAID_CHECK(refuse_if(shortage_ && shortage_->what.memory, ENOMEM, what));
  return refuse_if(shortage_ && shortage_->what.descriptors, EMFILE, what);
}

Status SimHost::alive(std::string_view what) const {
  if (!dead_) return ok_status();
  return make_error(Errc::kDead, "{}: process {} of machine {} has been killed", what, name_,
                    machine_.name());
}

Error SimHost::not_simulated(std::string_view what) const {
  return make_error(Errc::kNotSupported, "{} does not exist in simulation", what);
}

uint64_t SimHost::now_ns() {
  return world().now_ns();
}

uint64_t SimHost::wall_clock_ns() {
  return kWallClockAtStartNs + world().now_ns();
}

void SimHost::random(std::span<std::byte> out) {
  random_.fill(out);
}

std::string SimHost::boot_id() {
  return machine_.boot_id();
}

std::string SimHost::host_name() {
  return machine_.name();
}

bool SimHost::mutant(std::string_view name) const {
  const std::vector<std::string>& on = machine_.world().options().mutants;
  return std::find(on.begin(), on.end(), name) != on.end();
}

Result<std::unique_ptr<IoQueue>> SimHost::create_io_queue() {
  BRAID_CHECK(alive("create_io_queue"));
  slots_.push_back(std::make_unique<ReactorSlot>(*this));
  return std::unique_ptr<IoQueue>(std::make_unique<SimIoQueue>(*slots_.back()));
}

Result<std::unique_ptr<Thread>> SimHost::start_thread(std::string name, std::function<void()>) {
  return not_simulated(fmt::format("a thread ({})", name));
}

void SimHost::execute(std::function<void()> work) {
  if (dead_) return;
  const uint64_t id = ++work_ids_;
  work_.emplace(id, std::move(work));
  const SimTiming& timing = world().timing();
  const uint64_t delay_ns = world().random().between(timing.work_min_ns, timing.work_max_ns);
  world().push(world().now_ns() + delay_ns, EventKind::kWork, static_cast<uint32_t>(process_id_),
               [this, id] { run_work(id); });
}

void SimHost::run_work(uint64_t id) {
  if (dead_) return;
  if (paused_) {
    deferred_work_.push_back(id);
    return;
  }
  const std::function<void()> work = std::move(work_.extract(id).mapped());
  work();
}

std::unique_ptr<Event> SimHost::create_event() {
  if (const Status status = descriptor("cannot create an eventfd"); !status.ok()) {
    log_.error("{}", status.error().message());
    return nullptr;
  }
  return std::make_unique<SimEvent>(*this, std::make_shared<EventState>());
}

Result<std::unique_ptr<Event>> SimHost::adopt_event(std::unique_ptr<Handle> handle) {
  BRAID_CHECK(alive("adopt_event"));
  auto state =
      std::dynamic_pointer_cast<EventState>(static_cast<const SimHandle&>(*handle).object());
  if (state == nullptr)
    return make_error(Errc::kInvalid, "adopt_event: not the handle of an event");
  return std::unique_ptr<Event>(std::make_unique<SimEvent>(*this, std::move(state)));
}

namespace {

Status check_name(const std::string& name) {
  const auto refuse = [&](std::string_view rule) {
    return make_error(Errc::kInvalid, "name '{}': {}", name, rule);
  };
  if (name.empty()) return refuse("it must not be empty");
  if (name.size() > 255) return refuse("it must have at most 255 bytes");
  if (name.front() == '/') return refuse("it must be relative to the root");
  if (name.find('\0') != std::string::npos) return refuse("it must not hold a NUL");
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    if (name.compare(at, end - at, "..") == 0) return refuse("'..' is not allowed");
    at = end + 1;
  }
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<File>> SimHost::open_beneath(const std::string& root,
                                                    const std::string& name,
                                                    const OpenOptions& options) {
  BRAID_CHECK(alive("open_beneath"));
  BRAID_CHECK(check_name(name));
  BRAID_CHECK(descriptor(fmt::format("cannot open \"{}\"", name)));
  SimDisk* const disk = machine_.disk(root + "/" + name);
  if (disk == nullptr)
    return make_error(Errc::kNotFound, "there is no '{}' beneath the export root", name);
  const SimDiskOptions& is = disk->options();
  if (is.block_device && !options.allow_block_device)
    return make_error(Errc::kPermission, "'{}' is a block device, which is not allowed here", name);
  File::Info info;
  info.size_bytes = is.size_bytes;
  info.logical_block_bytes = is.logical_block_bytes;
  info.physical_block_bytes = is.physical_block_bytes;
  info.direct = options.direct;
  info.block_device = is.block_device;
  info.read_only = options.read_only;
  info.can_discard = true;
  info.can_write_zeroes = true;
  info.can_secure_erase = is.erases && !options.read_only;
  info.identity = disk->identity();
  std::shared_ptr<SimDiskLock> lock;
  if (options.lock) {
    lock = disk->lock(!options.read_only);
    if (lock == nullptr)
      return make_error(Errc::kBusy, "'{}' is locked by another process of machine {}", name,
                        machine_.name());
  }
  return std::unique_ptr<File>(std::make_unique<SimFile>(*disk, std::move(info), std::move(lock)));
}

Result<std::unique_ptr<Segment>> SimHost::create_segment(size_t size_bytes,
                                                         std::string_view purpose) {
  BRAID_CHECK(alive("create_segment"));
  if (size_bytes == 0) return make_error(Errc::kInvalid, "segment for {}: size 0", purpose);
  BRAID_CHECK(descriptor(fmt::format("cannot create memory for {}", purpose)));
  const size_t rounded = (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  return std::unique_ptr<Segment>(
      std::make_unique<SimSegment>(this, std::make_shared<SegmentMemory>(rounded)));
}

Result<std::unique_ptr<Segment>> SimHost::map_segment(std::unique_ptr<Handle> handle,
                                                      size_t size_bytes) {
  BRAID_CHECK(alive("map_segment"));
  auto memory =
      std::dynamic_pointer_cast<SegmentMemory>(static_cast<const SimHandle&>(*handle).object());
  if (memory == nullptr || memory->size < size_bytes)
    return make_error(Errc::kInvalid, "map_segment: not a segment of at least {} bytes",
                      size_bytes);
  return std::unique_ptr<Segment>(std::make_unique<SimSegment>(nullptr, std::move(memory)));
}

Segment* SimHost::find_segment(const void* address, size_t length) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (SimSegment* segment : segments_) {
    const auto data = reinterpret_cast<uintptr_t>(segment->data());
    if (begin >= data && begin - data <= segment->size() &&
        length <= segment->size() - (begin - data))
      return segment;
  }
  return nullptr;
}

Result<std::unique_ptr<PeerProcess>> SimHost::open_process(const PeerIdentity&) {
  return not_simulated("access to another process's memory");
}

Result<std::unique_ptr<LocalListener>> SimHost::listen_local(std::string_view abstract_name) {
  return not_simulated(fmt::format("a local socket ({})", abstract_name));
}

Result<std::unique_ptr<LocalSocket>> SimHost::connect_local(std::string_view abstract_name) {
  return not_simulated(fmt::format("a local socket ({})", abstract_name));
}

Result<std::unique_ptr<StreamListener>> SimHost::listen_stream(const SocketAddress& address,
                                                               int backlog) {
  BRAID_CHECK(alive("listen_stream"));
  BRAID_CHECK(descriptor("cannot create a TCP socket"));
  return SimStreamListener::create(*this, address, backlog);
}

Result<std::unique_ptr<StreamSocket>> SimHost::connect_stream(const std::string& local_ip,
                                                              const SocketAddress& peer) {
  BRAID_CHECK(alive("connect_stream"));
  BRAID_CHECK(descriptor("cannot create a TCP socket"));
  auto stream = std::make_shared<SimStream>(*this);
  BRAID_CHECK(stream->connect(local_ip, peer));
  return std::unique_ptr<StreamSocket>(std::make_unique<SimStreamSocket>(std::move(stream)));
}

std::optional<bool> SimHost::has_link(const std::string& ip) {
  const std::vector<std::string> ports = fabric().ports_of(*this);
  if (std::find(ports.begin(), ports.end(), ip) == ports.end()) return {};
  return fabric().port_up(ip);
}

void SimHost::end_lingering() {
  if (lingering_.empty()) return;
  world().push(world().now_ns(), EventKind::kMessage, static_cast<uint32_t>(process_id_), [this] {
    std::vector<std::shared_ptr<SimStream>> done;
    const auto first = std::stable_partition(lingering_.begin(), lingering_.end(),
                                             [](const auto& each) { return !each->drained(); });
    std::move(first, lingering_.end(), std::back_inserter(done));
    lingering_.erase(first, lingering_.end());
  });
}

}  // namespace braid::base::sim
