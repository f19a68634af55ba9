// The local block devices: a file or disk, memory, and nothing at all.
//
// Each belongs to one reactor: made, used and destroyed on its thread, with no request in flight
// when it is destroyed. All take buffers anywhere in memory; a file's direct I/O copies those that
// are not aligned to its logical block (counted as copies).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/reactor.h"
#include "bnbd/block.h"

namespace braid::bnbd {

inline constexpr uint64_t kMemoryDeviceBytesMax = uint64_t{1} << 46;

struct MemoryDeviceOptions {
  uint64_t size_bytes = 0;  // 1 to kMemoryDeviceBytesMax; rounded up to 4 KiB
  uint32_t logical_block_bytes = 512;
  uint32_t max_io_bytes = 1 << 20;
  uint32_t queue_depth = 128;
  /// Discard gives whole pages back to the system. Not for memory registered with a device that
  /// pins pages: it would go on reading the old ones.
  bool give_memory_back = true;
  /// It takes all of its memory at once, in huge pages (base::populate_huge), and gives back none:
  /// random reads of much memory miss fewer translations.
  bool huge_pages = false;
};

/// A disk in a Segment. Reads may be lent, so a server sends them without any copy. Its identity is
/// drawn at random: when the process ends the content is gone, and the next one is another disk.
/// `done` runs inside submit().
base::Result<std::unique_ptr<BlockDevice>> create_memory_device(base::Host& host,
                                                                const MemoryDeviceOptions& options);

struct NullDeviceOptions {
  std::string name;  // its identity
  uint64_t size_bytes = 0;
  uint32_t max_io_bytes = 1 << 20;
  uint32_t queue_depth = 128;
};

/// Takes every write and reads as zeroes (lent). For measuring what lies above. `done` runs inside
/// submit().
base::Result<std::unique_ptr<BlockDevice>> create_null_device(base::Host& host,
                                                              const NullDeviceOptions& options);

struct FileDeviceOptions {
  std::string root;  // a directory
  std::string name;  // beneath it
  bool read_only = false;
  bool direct = true;               // where the file system can
  bool allow_block_device = false;  // also disks that lie beneath the root
  uint32_t max_io_bytes = 1 << 20;
  uint32_t queue_depth = 128;
  /// How long to try while another holds the file's lock: a killed process's last operations do.
  uint64_t lock_patience_ns = 2 * base::kSecond;
};

/// A file or disk beneath a root, locked against other processes (OpenOptions::lock). Data moves
/// between buffer and disk without a copy. Its identity is the file's; its incarnation is the
/// machine's boot, as a killed process loses nothing that was acknowledged. What may be read and
/// not be written becomes a device for reading. Errors: those of Host::open_beneath; kInvalid for a
/// file that is empty or no multiple of its blocks.
base::Task<base::Result<std::unique_ptr<BlockDevice>>> open_file_device(
    base::Reactor& reactor, FileDeviceOptions options, std::function<base::Task<void>()> turn = {});

}  // namespace braid::bnbd
