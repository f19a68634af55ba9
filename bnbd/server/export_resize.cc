// Exports that change their size: by the operator, or noticed (docs/bnbd.md, "Size").
#include "bnbd/server/export.h"
#include "bnbd/server/session.h"

namespace braid::bnbd::server {

using base::Errc;
using base::make_error;
using base::Result;
using base::Status;

Status ExportTable::may_shrink(const Export& what, uint64_t size_bytes) {
  if (size_bytes >= what.device->info().size_bytes || what.holders.empty()) return {};
  std::string holders;
  for (const SessionDevice* holder : what.holders) {
    holders += (holders.empty() ? "" : " and ") + holder_text(*holder);
  }
  return make_error(Errc::kBusy,
                    "'{}' has {} bytes and is open by {}: shrunk to {} it loses what they keep "
                    "beyond; --force does it",
                    what.name, what.device->info().size_bytes, holders, size_bytes);
}

base::Task<Result<uint64_t>> ExportTable::resize(std::string name, uint64_t size_bytes,
                                                 bool force) {
  Export* const found = find(name);
  if (found == nullptr || !found->device || found->opening) {
    co_return make_error(Errc::kNotFound,
                         "no export '{}' is open: a file that nobody has open gets another size by "
                         "itself (truncate -s)",
                         name);
  }
  if (!force) BRAID_CO_CHECK(may_shrink(*found, size_bytes));
  const uint64_t before = found->device->info().size_bytes;
  ++found->waiters;
  const Status done = co_await found->device->resize(size_bytes);
  --found->waiters;
  const bool set = found->device->info().size_bytes == size_bytes && size_bytes != before;
  // Then it is not durable: a flush has failed.
  if (!done.ok() && set) count_failure(*found->failures);
  tell_size(*found, before);
  release(*found);
  if (done.ok()) co_return size_bytes;
  if (!set) co_return done.error();
  co_return make_error(done.code(),
                       "{}; it has the new size, but a loss of power may take that back",
                       done.error().message());
}

void ExportTable::tell_size(Export& what, uint64_t before) {
  const uint64_t size_bytes = what.device->info().size_bytes;
  if (size_bytes == before) return;
  ++resized_;
  log_.info("{}: {} from {} to {} bytes", what.name, size_bytes > before ? "grew" : "shrank",
            before, size_bytes);
  if (reactor_.host().mutant("size-untold")) return;
  for (SessionDevice* holder : what.holders) holder->session.tell_resized(*holder);
}

void ExportTable::look_due(base::Timer& timer) {
  auto& table = *static_cast<ExportTable*>(timer.context);
  bool files = false;
  for (const auto& each : table.exports_) {
    if (each->permanent) continue;
    files = true;
    const bool open = each->device && !each->opening && !each->holders.empty();
    if (!open || (each->looking && !each->looking.done())) continue;
    each->looking = table.look_at_size(*each);
    each->looking.start();
  }
  if (files) table.reactor_.schedule_after(timer, table.options_.size_look_ns);
}

/// A disk that hangs has one worker waiting for it, not one for each look.
base::Task<void> ExportTable::look_at_size(Export& what) {
  const uint64_t before = what.device->info().size_bytes;
  ++what.waiters;
  Result<bool> changed = co_await what.device->refresh_size();
  --what.waiters;
  if (!changed.ok()) {
    log_.warning("{}: its size cannot be asked for: {}", what.name, changed.error().message());
  } else if (*changed) {
    tell_size(what, before);
  }
  if (what.holders.empty() && what.waiters == 0) {
    // Its end would be that of this task: in a turn of its own.
    reactor_.schedule_after(what.unclaimed, 0);
  }
}

}  // namespace braid::bnbd::server
