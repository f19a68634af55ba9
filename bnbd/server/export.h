// What the server has to offer: named memory and null devices, which live as long as the server,
// and files, opened for their first user and closed after the last.
//
// One reactor, the home. Owned by the server; outlives its sessions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/limited_log.h"
#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/server.h"
#include "bnbd/server/revocations.h"
#include "bnbd/server/tenure.h"
#include "bnbd/wire.h"

namespace braid::bnbd::server {

struct DoorPlace;
struct RequestSlot;
struct SessionDevice;
class Door;
class ExportTable;

/// Of failed flushes a file has a mark, for the next process.
enum class MarkState : uint8_t {
  kNone,  // none has failed since another process had the file, or it is memory
  kDue,   // to be left at the next chance: it could not be left yet
  kLeft,
  kImpossible,  // the file keeps none
};

/// Flushes of one device that have failed in this process.
struct Failures {
  uint64_t flushes = 0;
  MarkState mark = MarkState::kNone;
  uint64_t incarnation = 0;      // of the device, but for the mark of this process
  uint64_t marked_as = 0;        // its incarnation with that; 0: there is none
  std::string name;              // of the export, when it was opened last
  std::weak_ptr<base::File> at;  // the file; none: memory, which ends with the process
  bool is_file = false;
  bool marking = false;  // by `mark_task`
  base::Task<void> mark_task;
};

/// One backend and who uses it.
struct Export {
  Export(ExportTable& owner, base::Reactor& reactor);

  ExportTable& table;
  std::string name;
  std::string kind;
  bool permanent = false;
  bool opening = false;  // by `opening_task`; those who want it wait for `opened`
  uint64_t opening_since_ns = 0;
  base::Signal opened;                  // the attempt has ended, well or not
  base::Status open_status;             // how
  unsigned waiters = 0;                 // tasks between find and hold, and `last_flush`
  std::unique_ptr<BlockDevice> device;  // null while opening
  /// A memory device: what is asked of it is done when submit() returns, and takes its time there.
  /// It reads each byte of a write once.
  bool works_inside_submit = false;
  std::unique_ptr<vhca::Mr> lendable;  // device->lendable_memory() at the transport, if any
  Failures* failures = nullptr;        // the table's, of this device; set with `device`
  BlockRequest last_flush;             // the server's own, before it closes the file
  bool flushing = false;               // by that
  base::IntrusiveList<RequestSlot> behind_flush;  // good ends that wait for its end
  uint64_t changes_flushed = 0;                   // of the device, when it began
  std::vector<SessionDevice*> holders;
  base::Task<void> looking;  // at its size
  base::Timer unclaimed;     // it was opened when nobody waited any more: kept until then
  base::Task<void> opening_task;

  /// Whether one more may hold it in this mode; the refusal names those in the way. `continues`: it
  /// was a writer before and comes back, beside whom had joined it for a migration.
  base::Status may_hold(wire::AccessMode mode, bool continues) const;
  bool has_writer() const;
};

class ExportTable {
 public:
  /// `door` outlives it.
  ExportTable(base::Reactor& reactor, const ExportServerOptions& options, Door& door);
  ~ExportTable();

  /// Reads the root and makes the named ones. kInvalid, kNoMemory.
  base::Status create_named();
  /// What the name means to the session: that of a named export, or of a file. kInvalid.
  base::Result<std::string> name_for(std::string_view owner, std::string_view asked);
  /// Finds or opens it, by name_for(). The caller then holds it (adds itself to `holders` in the
  /// same turn) or calls release(). kTimedOut if the opening takes longer than `patience_ns`; it
  /// goes on, and who asks again finds it where it is. One that hangs holds up nobody else.
  base::Task<base::Result<Export*>> open(std::string name, uint64_t patience_ns);
  /// Whether one who may hold `found` for writing may do so with the tenure it claims; if it is a
  /// new writer, there is a vacant tenure then. kStale: another client has had the device since.
  /// kTimedOut as in open(). The caller holds `found` by Export::waiters; `place` is its client's
  /// at the door.
  base::Task<base::Status> begin_writing(Export& found, wire::OpenRequest request,
                                         uint64_t patience_ns, DoorPlace& place);
  /// Makes the tenure that begin_writing() saw to the holder's own.
  void take_tenure(SessionDevice& holder, uint64_t claimed);
  /// What the client is told of a request that makes writes durable (flush, preflush, FUA) and that
  /// the device ended with `status`. The kernel tells of pages that it could not write once for
  /// each open file, and ours is shared by several sessions and requests: each that was under way
  /// is told, and each session by its next flush, and by the next on each other connection as long
  /// as it has not been seen to know.
  base::Errc settle_flush(const RequestSlot& slot, base::Errc status);
  /// The device's own, changed by each failed flush, to what no other server process tells: a
  /// client that lost its path, and with it perhaps the answer, counts what it had not flushed as
  /// lost when it comes back.
  uint64_t incarnation(const Export& of);
  /// kCanceled if the operator has taken the device from this session, and it has not been given
  /// back since.
  base::Status check_revoked(const Export& from, const std::string& session) const;
  static base::Error revoked(const std::string& export_name);
  void revoke(const Export& from, const std::string& session);
  /// Of an export that is still being opened: nobody knows its identity yet.
  void revoke_name(const std::string& export_name, const std::string& session);
  void forgive(const Export& from, const std::string& session);
  /// ExportServer::resize().
  base::Task<base::Result<uint64_t>> resize(std::string name, uint64_t size_bytes, bool force);
  uint64_t resized() const { return resized_; }
  /// Closes a file that nobody holds or waits for: behind a flush, if something was written by way
  /// of the kernel's cache.
  void release(Export& found);
  /// From now on files are closed as they are: what the kernel cannot write then it is to tell the
  /// next process, and a flush of this one would take that word. Marks that are due are left.
  void begin_stop();
  /// Until no file is being flushed to be closed, or marked; the value says nothing.
  base::Task<bool> all_flushed();
  /// A flush, or a FUA write, that ended well while the export's own flush is under way, which may
  /// have been told what the kernel owed to both. True: it ends again, behind the other.
  bool holds_back(RequestSlot& slot, base::Errc status);
  /// To the log: the failed flushes that the next process will not know of.
  void tell_failures();
  /// What is being flushed or marked, for people; empty: nothing.
  std::string flushing() const;

  const std::vector<std::unique_ptr<Export>>& all() const { return exports_; }
  uint64_t now_ns() const { return reactor_.now_ns(); }

 private:
  friend struct Export;
  Export* find(std::string_view name);
  bool flush_to_close(Export& found);
  void flushed_to_close(Export& found, base::Errc status);
  void count_failure(Failures& failures);
  void leave_mark(Failures& failures);
  uint64_t random();
  base::Task<void> take_incarnation(Failures& failures, uint64_t found);
  base::Task<void> mark(Failures& failures, std::shared_ptr<base::File> file);
  base::Status create_one(const NamedExport& named);
  base::Result<Export*> begin_opening(const std::string& name);
  base::Task<void> run_opening(Export& made);
  static base::Task<bool> opened(Export& made);
  static void unclaimed_due(base::Timer& timer);
  static base::Status may_shrink(const Export& what, uint64_t size_bytes);
  void tell_size(Export& what, uint64_t before);
  static void look_due(base::Timer& timer);
  base::Task<void> look_at_size(Export& what);
  base::Task<base::Status> open_file(Export& made);
  base::Task<void> own_turn();
  base::Status check_workers() const;

  base::Reactor& reactor_;
  const ExportServerOptions& options_;
  Door& door_;
  base::Logger log_;
  base::LimitedLog comings_;  // what clients open and close
  base::LimitedLog losses_;   // what cannot be noted of failed flushes
  ExportRoot root_;
  TenureTable tenures_;
  std::vector<std::unique_ptr<Export>> exports_;
  base::Timer look_timer_;  // pending while a file is open
  bool stopping_ = false;
  std::shared_ptr<base::Signal> flushed_;  // before it was closed, one file was; shared with tasks
  uint64_t resized_ = 0;
  Revocations revoked_;                       // by identity
  Revocations revoked_names_;                 // by the export's name
  std::map<std::string, Failures> failures_;  // by identity; stays when the file is closed
  uint64_t process_ = 0;                      // random; 0: no incarnation has needed it
};

/// Whether what is written stays in the kernel's cache, which writes it when it likes.
bool is_cached(const BlockDevice& device);
/// Who has an export open, from where, how and since when, for people who want it too.
std::string holder_text(const SessionDevice& holder);

}  // namespace braid::bnbd::server
