// Opens a file beneath a root, on a worker, and describes it as a block device.

#include <algorithm>
#include <bit>
#include <optional>

#include "bnbd/backend/file_device.h"
#include "bnbd/backend/loss_mark.h"
#include "bnbd/backends.h"

namespace braid::bnbd {

using base::Errc;
using base::Result;

namespace {

constexpr uint64_t kLockRetryNs = 20 * base::kMillisecond;

/// What the worker brings back.
struct Opened {
  std::optional<Result<std::unique_ptr<base::File>>> file;
  Result<uint64_t> incarnation = uint64_t{0};
};

BlockInfo describe(const base::File::Info& file, const FileDeviceOptions& options,
                   uint64_t incarnation) {
  BlockInfo info;
  info.identity = file.identity;
  info.incarnation = incarnation;
  info.logical_block_bytes = std::max<uint32_t>(512, file.direct ? file.logical_block_bytes : 512);
  // What a file system calls its block is a hint for the sizes of buffers: 2 MiB with huge pages.
  info.physical_block_bytes =
      std::clamp(std::max(info.logical_block_bytes, file.physical_block_bytes), uint32_t{4096},
                 kBlockBytesMax);
  info.size_bytes = file.size_bytes;
  info.max_io_bytes = options.max_io_bytes;
  info.queue_depth = options.queue_depth;
  info.read_only = options.read_only || file.read_only;
  if (!info.read_only) {
    info.max_discard_bytes = file.can_discard ? uint64_t{1} << 30 : 0;
    info.max_write_zeroes_bytes = uint64_t{1} << 30;
    if (file.can_secure_erase) info.max_secure_erase_bytes = uint64_t{1} << 30;
    const bool told = std::has_single_bit(file.discard_granularity_bytes);
    info.discard_granularity_bytes =
        told ? file.discard_granularity_bytes : info.physical_block_bytes;
    info.discard_alignment_bytes = file.discard_alignment_bytes;
  }
  return info;
}

base::Status check_blocks(const BlockInfo& info, const std::string& name) {
  const uint32_t block = info.logical_block_bytes;
  if (block > kBlockBytesMax) {
    return base::make_error(Errc::kNotSupported,
                            "'{}' is on a disk with blocks of {} bytes: at most {} can be exported",
                            name, block, kBlockBytesMax);
  }
  if (block <= info.max_io_bytes) return {};
  return base::make_error(Errc::kInvalid,
                          "'{}' is on a disk with blocks of {} bytes, and the server's longest I/O "
                          "has {}: must be at least one block",
                          name, block, info.max_io_bytes);
}

/// A tail that no request can reach would be missing from the disk, and with it what programs keep
/// at a disk's end.
base::Status check_size(uint64_t size_bytes, const BlockInfo& info, const std::string& name) {
  const uint64_t block = info.logical_block_bytes;
  if (size_bytes == 0) {
    return base::make_error(
        Errc::kInvalid, "'{}' is empty: a disk has at least one block of {} bytes", name, block);
  }
  if (size_bytes % block == 0) return {};
  return base::make_error(Errc::kInvalid,
                          "'{}' has {} bytes, which is no multiple of its blocks of {}: the next "
                          "larger size that is right is {}",
                          name, size_bytes, block, (size_bytes / block + 1) * block);
}

}  // namespace

base::Task<Result<std::unique_ptr<BlockDevice>>> open_file_device(
    base::Reactor& reactor, FileDeviceOptions options, std::function<base::Task<void>()> turn) {
  auto opened = std::make_shared<Opened>();
  base::Host& host = reactor.host();
  std::function<void()> work = [opened, &host, options] {
    base::OpenOptions how;
    how.read_only = options.read_only;
    how.direct = options.direct;
    how.allow_block_device = options.allow_block_device;
    how.lock = true;
    opened->file.emplace(host.open_beneath(options.root, options.name, how));
    const Errc refused = opened->file->code();
    if (!how.read_only && (refused == Errc::kPermission || refused == Errc::kReadOnly)) {
      how.read_only = true;  // perhaps it may be read: then the device is for reading
      auto for_reading = host.open_beneath(options.root, options.name, how);
      if (for_reading.ok()) opened->file.emplace(std::move(for_reading));
    }
    if (opened->file->ok()) opened->incarnation = incarnation_of(host, ***opened->file);
  };
  for (const uint64_t began_ns = reactor.now_ns();;) {
    co_await reactor.offload(work);
    if (opened->file->code() != Errc::kBusy) break;
    if (reactor.now_ns() - began_ns > options.lock_patience_ns) break;
    co_await reactor.sleep_ns(kLockRetryNs);
  }
  BRAID_CO_TRY(auto file, std::move(*opened->file));
  BRAID_CO_TRY(const uint64_t incarnation, std::move(opened->incarnation));
  if (turn) {
    base::Task<void> its_turn = turn();
    co_await std::move(its_turn);
  }

  FileDevice::Options device;
  device.name = options.name;
  device.info = describe(file->info(), options, incarnation);
  BRAID_CO_CHECK(check_blocks(device.info, options.name));
  BRAID_CO_CHECK(check_size(file->info().size_bytes, device.info, options.name));
  BRAID_CO_TRY(auto scratch,
               host.create_segment(FileDevice::scratch_bytes(device.info), "file device"));
  co_return std::unique_ptr<BlockDevice>(std::make_unique<FileDevice>(
      reactor, std::move(file), std::move(scratch), std::move(device)));
}

}  // namespace braid::bnbd
