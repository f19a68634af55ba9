// A block device of this machine's kernel, served from a BlockDevice.
//
// Two front ends: nbd.ko (a socket pair, configured by netlink), and a file in a FUSE session with
// a loop device on it, for kernels without nbd.ko. docs/front-ends.md says which when, and why
// nothing is left behind.
//
// The deadlock rule: no thread of the serving process may wait for the device that it serves. A
// process killed while one of its threads waits for its own device never ends. So neither this
// process nor a library it calls may open, mount, stat or sync path(); let another process do it.
//
// Threads: the reactor's, the first of the BlockDevice's. Needs root (CAP_SYS_ADMIN).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/reactor.h"
#include "base/result.h"
#include "base/task.h"
#include "bnbd/block.h"
#include "bnbd/latency.h"

namespace braid::bnbd {

enum class KernelDeviceKind : uint8_t {
  kAuto,  // nbd.ko where the kernel has it, else FUSE + loop
  kNbd,
  kFuse,
  kNbdServer,  // no device of the kernel: an export for NBD clients (bnbd/nbd_service.h)
};
std::string_view to_string(KernelDeviceKind kind);

/// kInvalid unless a device may be called so: 1 to kDeviceNameMax letters, digits, '.', '_', '-',
/// not beginning with '.'. Losetup and nbd's sysfs show the name.
base::Status check_device_name(std::string_view name);
inline constexpr size_t kDeviceNameMax = 32;

struct KernelDeviceOptions {
  KernelDeviceKind kind = KernelDeviceKind::kAuto;
  std::string name = "disk";  // see check_device_name()
  /// Requests in flight at the BlockDevice, on each of its reactors that serves the kernel, 1 to
  /// 256. Each has a buffer, by FUSE of at most 256 KiB, by nbd 1 MiB. Two are there at first, more
  /// when they are needed.
  unsigned slots = 32;
  /// 1 to 16: as many queues of the kernel's device. At least one for each of the BlockDevice's
  /// reactors; connection c is served on reactor c mod R. (FUSE: its first reactor alone.)
  unsigned nbd_connections = 1;
  /// How long nbd.ko holds I/O after this process died before it fails. 0: at once.
  uint32_t nbd_dead_connection_timeout_s = 5;
  /// DetachMode::kForce: dirty pages, also those of mounted file systems, are given up when the
  /// device has answered no request for this time, however many there are.
  uint64_t force_flush_timeout_ns = 5 * base::kSecond;
};

/// How a device is taken away.
enum class DetachMode : uint8_t {
  kPolite,   // what is dirty is written back first
  kIfClean,  // without any I/O, for a BlockDevice that does not answer: nothing may be dirty
  kForce,    // users get I/O errors once what is dirty had its time to be written
};

struct Detached {
  /// By force: what was dirty and may not have reached the BlockDevice, and why; empty: nothing.
  std::string lost;
};

struct KernelDeviceStatistics {
  uint64_t requests = 0;    // taken from the kernel
  uint64_t refused = 0;     // answered with an error without asking the BlockDevice
  uint64_t errors = 0;      // failed by the BlockDevice
  uint64_t lent_reads = 0;  // answered from the BlockDevice's own memory
  uint64_t starved = 0;     // times that all slots were taken when the kernel had more
  unsigned in_flight = 0;
  /// Requests that have ended: while this grows, whoever waits for them need not lose patience.
  uint64_t answered() const { return requests - in_flight; }
};

class KernelDevice {
 public:
  /// May be destroyed without detach() (a crash of the caller's plans): the kernel's requests fail,
  /// the device vanishes when its last user closes it, and requests that the BlockDevice holds keep
  /// their memory until they complete.
  virtual ~KernelDevice() = default;

  virtual const std::string& path() const = 0;  // "/dev/loop3"
  virtual KernelDeviceKind kind() const = 0;    // kNbd or kFuse
  /// Which front end and why, for people: "FUSE file + loop device, because ...".
  virtual const std::string& kind_text() const = 0;
  /// False once the kernel has cut the device off without being asked to (an administrator
  /// aborted the FUSE connection, `nbd-client -d`): all its I/O fails, detach() tidies up.
  virtual bool alive() const = 0;
  virtual KernelDeviceStatistics statistics() const = 0;
  /// From the arrival of each request (of a long one: its first part) to its end, where asked for
  /// (NbdExportOptions::latencies): most devices count it themselves.
  virtual LatencyHistogram latency(LatencyKind) const { return {}; }

  /// After how long the kernel itself fails a request that the BlockDevice has not completed, and
  /// with it the device; kNever: it waits for as long as it takes.
  virtual uint64_t waits_at_most_ns() const = 0;

  /// The BlockDevice has another size: so has the kernel's device afterwards, and who polls it is
  /// told by uevent. Users that stand beyond a smaller end get I/O errors. kNotSupported: this
  /// kernel cannot without setting the device up anew. Not while detach() is under way.
  virtual base::Task<base::Status> follow_size() = 0;

  /// Takes the device away and waits until the BlockDevice has completed everything.
  /// kBusy: in use for two seconds; the message names what uses it (mount point, process, holder).
  /// kIo: dirty data cannot be written, or kIfClean found some; kNotSupported: this kernel cannot
  /// tell kIfClean (before Linux 6.5). After each of these the device works on as before.
  /// With kForce it goes in any case: users get I/O errors, and a device that is still mounted
  /// disappears when it is unmounted. A BlockDevice that holds requests (no path to the server)
  /// must be told to fail them, else this waits for it. Once only after success.
  virtual base::Task<base::Result<Detached>> detach(DetachMode mode) = 0;
};

/// Gives the kernel a device. `device` outlives the KernelDevice. kNotSupported names what this
/// kernel lacks, kPermission what the process may not do.
base::Task<base::Result<std::unique_ptr<KernelDevice>>> attach(base::Reactor& reactor,
                                                               BlockDevice& device,
                                                               KernelDeviceOptions options);

}  // namespace braid::bnbd
