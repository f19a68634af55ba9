#include "bnbd/server/tenure.h"

#include "base/host.h"

namespace braid::bnbd::server {

using base::Errc;
using base::make_error;
using base::Status;

namespace {

/// What a worker brings back.
struct NoteRead {
  base::Result<uint64_t> note = uint64_t{0};
};
struct NoteSet {
  Status status;
  bool done = false;    // also if it could not be made durable
  bool undone = false;  // then: the former one is there again
};

NoteSet set_note(base::File& file, uint64_t note, uint64_t before) {
  NoteSet set{.status = file.set_note(note)};
  set.done = set.status.ok();
  if (set.done || set.status.code() == Errc::kNotSupported) return set;
  base::Result<uint64_t> now = file.note();
  set.done = now.ok() && *now == note;
  set.undone = set.done && file.set_note(before).ok();
  return set;
}

}  // namespace

Claim judge_claim(const Tenure& tenure, uint64_t claimed) {
  if (claimed == 0) return Claim::kNew;
  // No writer is known: a server that lives since then would know, or the file, if it can.
  if (tenure.number == 0 || tenure.number == claimed) return Claim::kContinues;
  return Claim::kSuperseded;
}

TenureTable::TenureTable(base::Reactor& reactor)
    : reactor_(reactor), log_(reactor.log().child("tenure")) {}

TenureTable::~TenureTable() = default;

Tenure& TenureTable::of(const std::string& identity) {
  std::unique_ptr<Tenure>& tenure = tenures_[identity];
  if (!tenure) tenure = std::make_unique<Tenure>(reactor_);
  return *tenure;
}

base::Task<Status> TenureTable::learn(const BlockDevice& device) {
  const std::shared_ptr<base::File> file = device.file();
  if (!file || device.info().read_only) co_return base::ok_status();
  const auto read = std::make_shared<NoteRead>();
  std::function<void()> work = [read, file] { read->note = file->note(); };
  co_await reactor_.offload(std::move(work));
  if (read->note.code() == Errc::kNotSupported) {
    log_.warning("{}: {}; a change of writers over a restart of this server goes unnoticed",
                 device.info().identity, read->note.error().message());
    co_return base::ok_status();
  }
  if (!read->note.ok()) co_return read->note.error();
  Tenure& tenure = of(device.info().identity);
  const bool known = *read->note == tenure.number || *read->note == tenure.undone;
  if (*read->note == 0 || known) co_return base::ok_status();
  tenure.number = *read->note;
  tenure.vacant = false;
  tenure.writer.clear();
  co_return base::ok_status();
}

base::Task<Status> TenureTable::settle(Tenure& tenure, uint64_t patience_ns) {
  if (tenure.recording) {
    base::Task<bool> end = recorded(tenure);
    co_await reactor_.with_timeout(std::move(end), patience_ns);
  }
  if (!tenure.recording) co_return base::ok_status();
  co_return make_error(Errc::kTimedOut,
                       "a change of writers has not been recorded at the server after {} ms (its "
                       "disk is slow or does not answer)",
                       (reactor_.now_ns() - tenure.recording_since_ns) / base::kMillisecond);
}

base::Task<Status> TenureTable::vacate(Tenure& tenure, const BlockDevice& device,
                                       std::function<void()> undurable, uint64_t patience_ns) {
  if (tenure.vacant) co_return base::ok_status();
  if (!tenure.recording) {
    const uint64_t before = tenure.number;
    do {
      reactor_.host().random(std::as_writable_bytes(std::span(&tenure.number, 1)));
    } while (tenure.number == 0);
    tenure.recording = true;
    tenure.recording_since_ns = reactor_.now_ns();
    tenure.record_task = record(tenure, device.file(), std::move(undurable), before);
    tenure.record_task.start();
  }
  BRAID_CO_CHECK(co_await settle(tenure, patience_ns));
  co_return tenure.record_status;
}

/// `before`: the tenure that goes on if this fails, as nobody else was let in.
base::Task<void> TenureTable::record(Tenure& tenure, std::shared_ptr<base::File> file,
                                     std::function<void()> undurable, uint64_t before) {
  tenure.record_status = base::ok_status();
  if (file) {
    const auto set = std::make_shared<NoteSet>();
    // The worker may outlive the device, and this server.
    std::function<void()> work = [set, file, number = tenure.number, before] {
      *set = set_note(*file, number, before);
    };
    file.reset();
    co_await reactor_.offload(std::move(work));
    const Errc code = set->status.code();
    if (code != Errc::kOk && code != Errc::kNotSupported) {
      tenure.record_status = make_error(Errc::kIo, "the change of writers cannot be recorded: {}",
                                        set->status.error().message());
      if (set->done) undurable();
      if (set->done && !set->undone) tenure.undone = tenure.number;
    }
  }
  tenure.recording = false;
  tenure.vacant = tenure.record_status.ok();
  if (!tenure.vacant) tenure.number = before;
  tenure.recorded.notify_all();
}

base::Task<bool> TenureTable::recorded(Tenure& tenure) {
  while (tenure.recording) co_await tenure.recorded.wait();
  co_return true;
}

unsigned TenureTable::stuck(uint64_t for_ns) const {
  unsigned count = 0;
  for (const auto& [identity, tenure] : tenures_) {
    if (tenure->recording && reactor_.now_ns() - tenure->recording_since_ns >= for_ns) ++count;
  }
  return count;
}

}  // namespace braid::bnbd::server
