#include "bnbd/server/export.h"

#include <algorithm>

#include "bnbd/backends.h"
#include "bnbd/server/door.h"
#include "bnbd/server/export_name.h"
#include "bnbd/server/opening.h"
#include "bnbd/server/session.h"

namespace braid::bnbd::server {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

namespace {

// Each hanging opening takes one of the host's worker threads (256) for as long as it hangs.
constexpr unsigned kStuckMax = 64;
constexpr uint64_t kStuckNs = 3 * base::kSecond;
// A failure is told to who asks again at once, and tried anew for others.
constexpr uint64_t kOldNewsNs = base::kSecond;
constexpr size_t kMigrationWritersMax = 2;
constexpr size_t kRevokedMax = 4096;

/// A span of time for people, in its largest unit.
std::string span_text(uint64_t span_ns) {
  const uint64_t s = span_ns / base::kSecond;
  if (s < 120) return fmt::format("{} s", s);
  if (s < 7200) return fmt::format("{} min", s / 60);
  return s < 172800 ? fmt::format("{} h", s / 3600) : fmt::format("{} days", s / 86400);
}

}  // namespace

Export::Export(ExportTable& owner, base::Reactor& reactor)
    : table(owner), opened(reactor), unclaimed(&ExportTable::unclaimed_due, this) {}

bool Export::has_writer() const {
  return std::any_of(holders.begin(), holders.end(), [](const SessionDevice* holder) {
    return holder->mode != wire::AccessMode::kReadOnly;
  });
}

base::Status Export::may_hold(wire::AccessMode mode, bool continues) const {
  if (mode == wire::AccessMode::kReadOnly) return {};
  if (device->info().read_only) {
    return make_error(Errc::kReadOnly, "'{}' may only be read at the server: map it read-only",
                      name);
  }
  bool all_migrate = true;
  std::string held_by;
  size_t writers = 0;
  for (const SessionDevice* holder : holders) {
    if (holder->mode == wire::AccessMode::kReadOnly) continue;
    ++writers;
    all_migrate = all_migrate && holder->mode == wire::AccessMode::kMigration;
    held_by += fmt::format("{}{}", held_by.empty() ? "" : " and ", holder_text(*holder));
  }
  const bool beside = mode == wire::AccessMode::kMigration || (continues && all_migrate);
  if (writers < (beside ? kMigrationWritersMax : 1)) return {};
  return make_error(Errc::kBusy, "'{}' is open for writing by {}{}", name, held_by,
                    writers == 1 ? "" : ", and more than two writers there may not be");
}

std::string holder_text(const SessionDevice& holder) {
  const uint64_t held_ns = holder.exported.table.now_ns() - holder.opened_ns;
  return fmt::format("{} ({}, mode {}, for {})", holder.session.name(), holder.session.peer(),
                     wire::to_string(holder.mode), span_text(held_ns));
}

ExportTable::ExportTable(base::Reactor& reactor, const ExportServerOptions& options, Door& door)
    : reactor_(reactor),
      options_(options),
      door_(door),
      log_(reactor.log().child("export")),
      comings_(reactor, log_, {.burst = 200, .per_second = 10}),
      losses_(reactor, log_, {.burst = 10, .per_second = 1}),
      tenures_(reactor),
      look_timer_(&ExportTable::look_due, this),
      flushed_(std::make_shared<base::Signal>(reactor)),
      revoked_(kRevokedMax),
      revoked_names_(kRevokedMax) {}

ExportTable::~ExportTable() = default;

Status ExportTable::create_named() {
  BRAID_TRY(root_, parse_export_root(options_.root));
  for (const NamedExport& named : options_.named) BRAID_CHECK(create_one(named));
  return {};
}

Status ExportTable::create_one(const NamedExport& named) {
  BRAID_CHECK(check_export_name(named.name));
  const std::string name = normal_export_name(named.name);
  if (find(name) != nullptr) {
    return make_error(Errc::kInvalid, "export name '{}' is given twice", name);
  }
  auto made = std::make_unique<Export>(*this, reactor_);
  made->name = name;
  made->permanent = true;
  base::Host& host = reactor_.host();
  if (named.kind == NamedExport::Kind::kMemory) {
    MemoryDeviceOptions options;
    options.size_bytes = named.size_bytes;
    options.max_io_bytes = options_.transport.max_io_bytes;
    options.queue_depth = options_.transport.queue_depth;
    options.huge_pages = named.huge_pages;
    if (named.huge_pages) {
      reactor_.log().info("export '{}': taking {} MiB in huge pages", name, named.size_bytes >> 20);
    }
    auto device = create_memory_device(host, options);
    if (!device.ok()) return device.error().with("export '{}'", name);
    made->kind = "memory";
    made->works_inside_submit = true;
    made->device = std::move(device).value();
  } else {
    NullDeviceOptions options;
    options.name = name;
    options.size_bytes = named.size_bytes;
    options.max_io_bytes = options_.transport.max_io_bytes;
    options.queue_depth = options_.transport.queue_depth;
    auto device = create_null_device(host, options);
    if (!device.ok()) return device.error().with("export '{}'", name);
    made->kind = "null";
    made->device = std::move(device).value();
  }
  made->failures = &failures_[made->device->info().identity];
  made->failures->incarnation = made->device->info().incarnation;
  exports_.push_back(std::move(made));
  return {};
}

Export* ExportTable::find(std::string_view name) {
  const auto found = std::find_if(exports_.begin(), exports_.end(),
                                  [&](const auto& each) { return each->name == name; });
  return found == exports_.end() ? nullptr : found->get();
}

Result<std::string> ExportTable::name_for(std::string_view owner, std::string_view asked) {
  const std::string name = normal_export_name(asked);
  const Export* const found = find(name);
  if (found != nullptr && found->permanent) return name;
  return file_name(root_, owner, name);
}

base::Task<Result<Export*>> ExportTable::open(std::string name, uint64_t patience_ns) {
  Export* found = find(name);
  if (found == nullptr) {
    BRAID_CO_TRY(found, begin_opening(name));
  }
  const uint64_t waited_ns = reactor_.now_ns() - found->opening_since_ns;
  if (found->opening && waited_ns < patience_ns) {
    ++found->waiters;
    base::Task<bool> end = opened(*found);
    co_await reactor_.with_timeout(std::move(end), patience_ns - waited_ns);
    --found->waiters;
  }
  if (found->opening) {
    co_return make_error(
        Errc::kTimedOut,
        "'{}' is still being opened at the server after {} ms (its disk is slow or "
        "does not answer)",
        name, (reactor_.now_ns() - found->opening_since_ns) / base::kMillisecond);
  }
  reactor_.cancel(found->unclaimed);
  if (!found->open_status.ok()) {
    const base::Error why = found->open_status.error();
    release(*found);
    co_return why;
  }
  co_return found;
}

Result<Export*> ExportTable::begin_opening(const std::string& name) {
  if (root_.folder.empty()) {
    return make_error(Errc::kNotFound, "there is no export '{}', and no directory is exported",
                      name);
  }
  BRAID_CHECK(check_workers());
  exports_.push_back(std::make_unique<Export>(*this, reactor_));
  Export& made = *exports_.back();
  made.name = name;
  made.kind = "file";
  made.opening = true;
  made.opening_since_ns = reactor_.now_ns();
  made.opening_task = run_opening(made);
  made.opening_task.start();
  return &made;
}

/// Of what hangs at its disk, each takes a worker.
Status ExportTable::check_workers() const {
  unsigned stuck = tenures_.stuck(kStuckNs);
  for (const auto& other : exports_) {
    if (other->opening && reactor_.now_ns() - other->opening_since_ns >= kStuckNs) ++stuck;
  }
  if (stuck < kStuckMax) return {};
  return make_error(Errc::kBusy,
                    "{} other exports have been opened for {} s without an answer of their disks: "
                    "no more are opened until one of them ends",
                    stuck, kStuckNs / base::kSecond);
}

base::Task<void> ExportTable::run_opening(Export& made) {
  made.open_status = co_await open_file(made);
  made.opening = false;
  made.opened.notify_all();
  if (made.waiters > 0) co_return;
  reactor_.schedule_after(made.unclaimed, made.open_status.ok() ? kAsksAgainNs : kOldNewsNs);
}

base::Task<bool> ExportTable::opened(Export& made) {
  while (made.opening) co_await made.opened.wait();
  co_return true;
}

void ExportTable::unclaimed_due(base::Timer& timer) {
  Export& made = *static_cast<Export*>(timer.context);
  made.table.release(made);
}

base::Task<Status> ExportTable::open_file(Export& made) {
  FileDeviceOptions options;
  options.root = root_.folder;
  options.name = made.name;
  options.read_only = options_.read_only;
  options.direct = options_.direct;
  options.allow_block_device = options_.block_devices;
  options.max_io_bytes = options_.transport.max_io_bytes;
  options.queue_depth = options_.transport.queue_depth;
  options.lock_patience_ns = options_.lock_patience_ns;
  std::function<base::Task<void>()> turn = [this] { return own_turn(); };
  BRAID_CO_TRY(made.device, co_await open_file_device(reactor_, options, std::move(turn)));
  BRAID_CO_CHECK(co_await tenures_.learn(*made.device));
  if (options_.size_look_ns != base::kNever && !look_timer_.pending()) {
    reactor_.schedule_after(look_timer_, options_.size_look_ns);
  }
  const BlockInfo& info = made.device->info();
  Failures& failures = failures_[info.identity];
  failures.name = made.name;
  failures.is_file = true;
  failures.at = made.device->file();
  made.failures = &failures;
  co_await take_incarnation(failures, info.incarnation);
  comings_.info("{}: opened, {} bytes in blocks of {}, {}{}", made.name, info.size_bytes,
                info.logical_block_bytes, info.identity,
                is_cached(*made.device) ? ", through the kernel's cache (no O_DIRECT there)" : "");
  co_return base::ok_status();
}

base::Task<void> ExportTable::own_turn() {
  co_await door_.turn(door_.own_place());
}

base::Task<Status> ExportTable::begin_writing(Export& found, wire::OpenRequest request,
                                              uint64_t patience_ns, DoorPlace& place) {
  Tenure& tenure = tenures_.of(found.device->info().identity);
  Status settled = co_await tenures_.settle(tenure, patience_ns);
  if (!settled.ok()) co_return settled.error().with("'{}'", found.name);
  Claim claim = judge_claim(tenure, request.tenure);
  if (reactor_.host().mutant("tenure-ignored") && request.tenure != 0) claim = Claim::kContinues;
  if (claim == Claim::kContinues) {
    tenure.number = request.tenure;
  } else if (claim == Claim::kSuperseded) {
    co_return make_error(Errc::kStale, "{} has opened '{}' for writing since",
                         tenure.writer.empty() ? "another client" : tenure.writer, found.name);
  }
  BRAID_CO_CHECK(found.may_hold(request.mode, claim == Claim::kContinues));
  // Who joins a writer in mode migration shares its tenure: both are wanted.
  if (claim == Claim::kContinues || found.has_writer()) co_return base::ok_status();
  if (found.device->file()) BRAID_CO_CHECK(check_workers());
  do {
    std::function<void()> undurable = [this, of = found.failures] { count_failure(*of); };
    base::Status recorded =
        co_await tenures_.vacate(tenure, *found.device, std::move(undurable), patience_ns);
    if (!recorded.ok()) co_return recorded.error().with("'{}'", found.name);
    co_await door_.turn(place);
    // Who came before may have been the writer, and gone: it would pass for the one of this tenure.
  } while (!tenure.vacant && !found.has_writer());
  co_return found.may_hold(request.mode, /*continues=*/false);  // another may have been faster
}

void ExportTable::take_tenure(SessionDevice& holder, uint64_t claimed) {
  Tenure& tenure = tenures_.of(holder.exported.device->info().identity);
  tenure.vacant = false;
  tenure.writer = fmt::format("{} ({})", holder.session.name(), holder.session.peer());
  holder.tenure = tenure.number;
  if (claimed == 0) comings_.info("{}: {} is its writer now", holder.exported.name, tenure.writer);
}

void ExportTable::release(Export& found) {
  if (found.permanent || found.opening || found.waiters > 0 || !found.holders.empty()) return;
  if (flush_to_close(found)) return;
  if (found.device) comings_.info("{}: closed", found.name);
  std::erase_if(exports_, [&](const auto& each) { return each.get() == &found; });
}

}  // namespace braid::bnbd::server
