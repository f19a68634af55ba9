// What the server has to offer: named memory and null devices, which live as long as the server,
// and files, opened for their first user and closed after the last.
//
// One reactor, the home. Owned by the server; outlives its sessions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/reactor.h"
#include "bnbd/block.h"
#include "bnbd/server.h"
#include "bnbd/wire.h"

namespace braid::bnbd::server {

struct SessionDevice;

/// One backend and who uses it.
struct Export {
  explicit Export(base::Reactor& reactor) : opened(reactor) {}

  std::string name;
  std::string kind;
  bool permanent = false;
  bool opening = false;                 // somebody opens it; others wait for `opened`
  base::Signal opened;                  // the attempt has ended, well or not
  base::Status open_status;             // how
  unsigned waiters = 0;                 // tasks between find and hold
  std::unique_ptr<BlockDevice> device;  // null while opening
  std::unique_ptr<vhca::Mr> lendable;   // registration of device->lendable_memory(), if any
  std::vector<SessionDevice*> holders;

  /// Whether one more may hold it in this mode; the refusal names those in the way.
  base::Status may_hold(wire::AccessMode mode) const;
};

class ExportTable {
 public:
  ExportTable(base::Reactor& reactor, const ExportServerOptions& options);
  ~ExportTable();

  /// Makes the named ones. kInvalid, kNoMemory.
  base::Status create_named();
  /// Finds or opens what the name means. The caller then holds it (adds itself to `holders` in the
  /// same turn) or calls release().
  base::Task<base::Result<Export*>> open(std::string name);
  /// Closes a file that nobody holds or waits for.
  void release(Export& found);

  const std::vector<std::unique_ptr<Export>>& all() const { return exports_; }

 private:
  Export* find(std::string_view name);
  base::Status create_one(const NamedExport& named);
  base::Task<base::Status> open_file(Export& made);

  base::Reactor& reactor_;
  const ExportServerOptions& options_;
  base::Logger log_;
  std::vector<std::unique_ptr<Export>> exports_;
};

/// The one spelling of a name: without empty and "." parts. Names that no file may have come back
/// as they are, to be refused where files are opened.
std::string normal_name(std::string_view name);

}  // namespace braid::bnbd::server
