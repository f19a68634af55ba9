// What can be known of an open file or disk: size, block sizes, abilities, identity.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "base/linux/disk_identity.h"
#include "base/linux/file.h"
#include "base/linux/file_identity.h"

#ifndef STATX_DIOALIGN
#error "The kernel headers are too old: Linux 6.1 or newer is needed to build"
#endif

namespace braid::base {
namespace {

constexpr uint32_t kSectorBytes = 512;
constexpr uint32_t kPageBytes = 4096;

uint64_t read_number(const std::string& path) {
  const std::string text = read_small_file(path);
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// For a file system that does not say what O_DIRECT demands: reads a sector and sees.
uint32_t probe_direct_alignment(int fd) {
  void* const page = std::aligned_alloc(kPageBytes, kPageBytes);
  if (page == nullptr) return kPageBytes;
  const ssize_t got = retry_interrupted([&] { return ::pread(fd, page, kSectorBytes, 0); });
  std::free(page);
  return got >= 0 ? kSectorBytes : kPageBytes;
}

std::string queue_folder(const std::string& sys_folder) {
  const bool partition = ::access((sys_folder + "/partition").c_str(), F_OK) == 0;
  return partition ? sys_folder + "/../queue" : sys_folder + "/queue";
}

/// Asked for a range that no disk has: who could at all says that it is wrong.
bool can_secure_erase(int fd) {
  uint64_t range[] = {1, 1};
  return ::ioctl(fd, BLKSECDISCARD, range) != 0 && errno == EINVAL;
}

/// Sequential zones take writes in order only, and resets that no message here carries.
Status refuse_zones(const std::string& sys_folder) {
  const std::string zoned = read_small_file(queue_folder(sys_folder) + "/zoned");
  if (zoned.empty() || zoned.starts_with("none")) return {};
  return make_error(Errc::kNotSupported,
                    "it is a zoned disk ({}): its zones must be written in order, which remote "
                    "devices do not promise",
                    zoned.substr(0, zoned.find('\n')));
}

Status examine_disk(int fd, dev_t device, bool direct, File::Info& info) {
  unsigned int physical = 0;
  int logical = 0;
  if (::ioctl(fd, BLKGETSIZE64, &info.size_bytes) != 0 || ::ioctl(fd, BLKSSZGET, &logical) != 0 ||
      ::ioctl(fd, BLKPBSZGET, &physical) != 0) {
    return sys_error(errno, "cannot read the size of a block device");
  }
  const std::string numbers = fmt::format("{}:{}", major(device), minor(device));
  const std::string sys_folder = "/sys/dev/block/" + numbers;
  BRAID_CHECK(refuse_zones(sys_folder));
  info.block_device = true;
  info.direct = direct;
  info.logical_block_bytes = static_cast<uint32_t>(logical);
  info.physical_block_bytes = std::max(physical, info.logical_block_bytes);
  // A disk that cannot punch would be filled with zeroes instead, and its space not given back.
  info.can_discard = read_number(queue_folder(sys_folder) + "/write_zeroes_max_bytes") > 0 &&
                     read_number(queue_folder(sys_folder) + "/discard_max_bytes") > 0;
  info.can_write_zeroes = true;  // the kernel writes zero pages where the disk cannot
  info.can_secure_erase = !info.read_only && can_secure_erase(fd);
  info.discard_granularity_bytes =
      static_cast<uint32_t>(read_number(queue_folder(sys_folder) + "/discard_granularity"));
  info.discard_alignment_bytes =
      static_cast<uint32_t>(read_number(sys_folder + "/discard_alignment"));
  info.identity = disk_identity(sys_folder, numbers, boot_id());
  return {};
}

Status examine_regular(int fd, const struct stat& what, bool direct, File::Info& info) {
  info.size_bytes = static_cast<uint64_t>(what.st_size);
  info.direct = direct;
  if (direct) {
    const DirectAlignment alignment = direct_alignment(fd);
    info.logical_block_bytes = alignment.known ? alignment.bytes : probe_direct_alignment(fd);
  }
  info.logical_block_bytes = std::max(info.logical_block_bytes, kSectorBytes);
  info.physical_block_bytes =
      std::max(static_cast<uint32_t>(what.st_blksize), info.logical_block_bytes);
  if (!std::has_single_bit(info.physical_block_bytes)) info.physical_block_bytes = kPageBytes;
  // Asked behind the end of the file: nothing changes, and the answer says whether it could.
  const off_t behind = (what.st_size / kPageBytes + 1) * kPageBytes;
  info.can_discard =
      !info.read_only &&
      retry_interrupted([&] {
        return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, behind, kPageBytes);
      }) == 0;
  info.can_write_zeroes = info.can_discard;
  BRAID_TRY(info.identity, identify_file(fd));
  return {};
}

}  // namespace

DirectAlignment direct_alignment(int path_fd) {
  struct statx info {};
  if (::statx(path_fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0 ||
      (info.stx_mask & STATX_DIOALIGN) == 0) {
    return {};
  }
  return {.known = true,
          .bytes = std::max(info.stx_dio_mem_align, info.stx_dio_offset_align) *
                   (info.stx_dio_offset_align != 0 ? 1u : 0u)};
}

Result<File::Info> examine_file(int fd, bool direct, bool read_only) {
  struct stat what;
  if (::fstat(fd, &what) != 0) return sys_error(errno, "cannot examine an open file");
  File::Info info;
  info.read_only = read_only;
  if (S_ISBLK(what.st_mode)) {
    BRAID_CHECK(examine_disk(fd, what.st_rdev, direct, info));
  } else {
    BRAID_CHECK(examine_regular(fd, what, direct, info));
  }
  return info;
}

}  // namespace braid::base
