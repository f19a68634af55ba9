// The export server: block devices for remote clients, over TRS sessions (docs/bnbd.md).
//
// Exports are the files beneath one root directory, by their relative names, and named memory and
// null devices that the operator lists. A device that several sessions open is one backend. One
// session may write at a time (mode rw; a second in mode migration); a refusal names the holder.
//
// Threads: everything here on the home reactor, the first of `transport.reactors`; requests that
// arrive on others are handed over to it and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bnbd/block.h"
#include "trs/server.h"

namespace braid::bnbd {

/// An export that is not a file.
struct NamedExport {
  enum class Kind : uint8_t { kMemory, kNull };
  Kind kind = Kind::kMemory;
  std::string name;
  uint64_t size_bytes = 0;
  bool huge_pages = false;  // of memory: MemoryDeviceOptions
};

/// The one spelling of an export's name: without leading slashes, empty and "." parts. Names that
/// no file may have come back as they are, to be refused where files are opened.
std::string normal_export_name(std::string_view name);
/// kInvalid unless a NamedExport may be called so: 1 to 254 bytes in the one spelling. Two of one
/// spelling are one name, and a server has it once.
base::Status check_export_name(std::string_view name);

/// The directory beneath which files are exported.
struct ExportRoot {
  std::string folder;        // empty: no files
  bool per_session = false;  // each session sees only the directory of its name, or its key's
};
/// "/srv/disks", or as RNBD's dev_search_path "/srv/disks/%SESSNAME%". A session's name is what its
/// client says: this keeps apart, it does not keep out. kInvalid for %SESSNAME% elsewhere.
base::Result<ExportRoot> parse_export_root(std::string_view text);

struct ExportServerOptions {
  std::string root;                                // for parse_export_root()
  std::vector<NamedExport> named;                  // found before files of the same name
  bool read_only = false;                          // nobody may write
  bool block_devices = false;                      // also export disks that lie beneath the root
  bool direct = true;                              // O_DIRECT where the file system can
  uint64_t lock_patience_ns = 2 * base::kSecond;   // FileDeviceOptions::lock_patience_ns
  uint64_t stop_patience_ns = 10 * base::kSecond;  // how long stop() waits for the disks
  /// Between two looks whether somebody has changed a file's size. kNever: none.
  uint64_t size_look_ns = 2 * base::kSecond;
  trs::ServerOptions transport;
};

/// One client's use of an export.
struct HolderStatus {
  std::string session;  // the session's name, as the client says
  std::string peer;
  std::string mode;  // "ro", "rw", "migration"
  BlockStatistics statistics;
};

/// One export that is open or named.
struct ExportStatus {
  std::string name;
  std::string kind;  // "file", "memory", "null"
  BlockInfo info;
  BlockStatistics statistics;  // of the backend
  bool cached = false;         // a file of which the kernel caches what is written (no O_DIRECT)
  std::vector<HolderStatus> holders;
};

/// One client session, and what it has open.
struct SessionStatus {
  struct Device {
    std::string name;
    std::string mode;
    uint64_t opened_for_ns = 0;
    uint32_t in_flight = 0;  // at the disk
    bool ending = false;     // closed; its disk has not answered its last requests yet
    BlockStatistics statistics;
  };
  uint64_t number = 0;  // of the sessions that this server has had; names may be there twice
  std::string name;
  std::string peer;
  std::vector<std::string> path_peers;    // from where each of its paths comes
  std::vector<std::string> chunk_guards;  // of these paths: "open", "windows", "copy"
  std::vector<std::vector<trs::ServedStatistics>> path_statistics;  // of these, by connection
  bool braid_peer = false;
  bool takes_notices = false;  // else a Braid client asks for news each second, others never
  std::string key;  // the name of that which it has proved to have; empty: none was asked for
  uint64_t opened_for_ns = 0;
  std::vector<Device> devices;
};

/// What an operator takes from clients.
struct ForceClose {
  std::string export_name;  // empty: all that the session has, and its connections
  std::string session;      // empty: of all sessions that have it
};
struct ForceClosed {
  unsigned devices = 0;
  unsigned sessions = 0;  // whose connections end, too
  /// Whose connections stay although all was to be taken: clients of another implementation, which
  /// open what they had again whenever they have a path again.
  unsigned kept = 0;
};

struct ExportServerStatistics {
  uint64_t opened = 0, closed = 0;
  uint64_t opens_refused = 0;
  uint64_t requests_refused = 0;  // malformed, out of range, against the mode, unknown device
  uint64_t handed_over = 0;       // requests that came on another reactor than the home
  /// Requests by the reactor on which they came, in the order of ServerOptions::reactors.
  std::vector<uint64_t> requests;
  uint64_t force_closed = 0;    // devices, by an operator
  uint64_t sessions_ended = 0;  // by an operator
  uint64_t resized = 0;         // exports, here or by others
};

class ExportServer {
 public:
  virtual ~ExportServer() = default;  // stop() first, unless the host is dead
  /// Starts to listen. Errors: those of trs::Server::create; kInvalid for a name that is empty, too
  /// long or there twice, or a size of zero; kNoMemory.
  static base::Result<std::unique_ptr<ExportServer>> create(vhca::Device& device,
                                                            ExportServerOptions options);
  virtual vhca::Address address() const = 0;                 // with the chosen port
  virtual std::vector<vhca::Address> addresses() const = 0;  // of all endpoints
  /// Ends all sessions, waits for their requests, closes all devices. kTimedOut, naming them, if
  /// disks still have requests after `stop_patience_ns`: call it again to wait longer, or end the
  /// process; the object cannot be destroyed, as a disk may still read or write its memory.
  virtual base::Task<base::Status> stop() = 0;

  virtual std::vector<ExportStatus> exports() const = 0;
  virtual ExportServerStatistics statistics() const = 0;
  virtual trs::ServerStatistics transport_statistics() const = 0;
  /// trs::Server::set_keys(): who may come from now on.
  virtual base::Result<size_t> set_keys(std::shared_ptr<const trs::KeyRing> keys) = 0;
  virtual std::vector<trs::ServerSession*> sessions() const = 0;
  virtual std::vector<SessionStatus> session_statuses() const = 0;

  /// Takes devices from their clients, as for one that hangs: what they send from now on is
  /// refused, what is at the disk ends first, then others may have the export. A Braid client is
  /// told, and does not get the device back until its user says so (RemoteDevice::remap). A session
  /// that is taken whole ends, whether it has anything open or not; its client may come back, but
  /// not to these devices. kNotFound if there was nothing; kBusy if all that was named is ending
  /// already; kInvalid if nothing is named.
  virtual base::Result<ForceClosed> force_close(const ForceClose& what) = 0;
  /// Gives an export that is open another size, and tells those who have it open; the size it has
  /// then. Without `force` it does not shrink while somebody has it open (kBusy names them): what
  /// they keep beyond the new end would be lost. kNotFound; else as BlockDevice::resize().
  virtual base::Task<base::Result<uint64_t>> resize(std::string name, uint64_t size_bytes,
                                                    bool force) = 0;
};

}  // namespace braid::bnbd
