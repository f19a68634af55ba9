#include "base/linux/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/linux/fd.h"
#include "base/pages.h"

namespace braid::base {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

class LinuxSegment : public Segment {
 public:
  LinuxSegment(std::unique_ptr<Handle> handle, std::byte* data, size_t size)
      : handle_(std::move(handle)), data_(data), size_(size) {}
  ~LinuxSegment() override { ::munmap(data_, size_); }
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }
  const Handle& handle() const override { return *handle_; }
  void discard(size_t offset, size_t length) override {
    BRAID_ASSERT(offset <= size_ && length <= size_ - offset);
    if (length == 0) return;
    static constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (::fallocate(handle_->fd(), kMode, static_cast<off_t>(offset), static_cast<off_t>(length)) !=
        0) {
      Segment::discard(offset, length);
    }
  }

 private:
  const std::unique_ptr<Handle> handle_;
  std::byte* const data_;
  const size_t size_;
};

/// At a multiple of huge pages, so that it may have some. MAP_FAILED as mmap().
void* map_at_huge_page(int fd, size_t size_bytes, int protection) {
  const size_t room = size_bytes + kHugePageBytes;
  void* const got =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return got;
  auto* const begin = static_cast<std::byte*>(got);
  const size_t ahead =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(begin) % kHugePageBytes) % kHugePageBytes;
  void* const data = ::mmap(begin + ahead, size_bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  const int error = errno;
  if (data == MAP_FAILED) {
    ::munmap(begin, room);
  } else {
    if (ahead != 0) ::munmap(begin, ahead);
    ::munmap(begin + ahead + size_bytes, room - ahead - size_bytes);
  }
  errno = error;
  return data;
}

Result<std::byte*> map_shared(int fd, size_t size_bytes, int protection = PROT_READ | PROT_WRITE) {
  void* const data = size_bytes < kHugePageBytes
                         ? ::mmap(nullptr, size_bytes, protection, MAP_SHARED, fd, 0)
                         : map_at_huge_page(fd, size_bytes, protection);
  if (data == MAP_FAILED) {
    return sys_error(errno, fmt::format("cannot map a segment of {} bytes", size_bytes));
  }
  return static_cast<std::byte*>(data);
}

Result<size_t> round_up_to_pages(size_t size_bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (size_bytes == 0 || size_bytes > SIZE_MAX / 2) {
    return make_error(Errc::kInvalid, "a segment of {} bytes; it must have 1 to {}", size_bytes,
                      SIZE_MAX / 2);
  }
  return (size_bytes + page - 1) / page * page;
}

Result<std::unique_ptr<Handle>> create_memfd(size_t size, std::string_view purpose) {
  const std::string name = fmt::format("braid-{}", purpose.substr(0, 200));
  const int fd = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return sys_error(errno, fmt::format("cannot create memory for {}", purpose));
  std::unique_ptr<Handle> handle = std::make_unique<Fd>(fd);
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) {
    return sys_error(errno, fmt::format("cannot size memory for {} at {} bytes", purpose, size));
  }
  return handle;
}

Status seal(const Handle& handle, int seals, std::string_view purpose) {
  if (::fcntl(handle.fd(), F_ADD_SEALS, seals | F_SEAL_SEAL) == 0) return {};
  return sys_error(errno, fmt::format("cannot seal memory for {}", purpose));
}

}  // namespace

/// A segment that leaves its table when it goes.
class SegmentTable::Owned : public LinuxSegment {
 public:
  Owned(SegmentTable& table, std::unique_ptr<Handle> handle, std::byte* data, size_t size)
      : LinuxSegment(std::move(handle), data, size), table_(table) {
    const std::unique_lock lock(table_.mutex_);
    table_.by_address_[reinterpret_cast<uintptr_t>(data)] = this;
  }
  ~Owned() override {
    const std::unique_lock lock(table_.mutex_);
    table_.by_address_.erase(reinterpret_cast<uintptr_t>(data()));
  }

 private:
  SegmentTable& table_;
};

Result<std::unique_ptr<Segment>> SegmentTable::create(size_t size_bytes, std::string_view purpose) {
  BRAID_TRY(const size_t size, round_up_to_pages(size_bytes));
  BRAID_TRY(auto handle, create_memfd(size, purpose));
  BRAID_CHECK(seal(*handle, kSizeSeals, purpose));
  BRAID_TRY(std::byte* const data, map_shared(handle->fd(), size));
  return std::unique_ptr<Segment>(std::make_unique<Owned>(*this, std::move(handle), data, size));
}

Result<std::unique_ptr<Segment>> create_published_linux_segment(size_t size_bytes,
                                                                std::string_view purpose) {
  BRAID_TRY(const size_t size, round_up_to_pages(size_bytes));
  BRAID_TRY(auto handle, create_memfd(size, purpose));
  // Our mapping comes before the seal that allows no other.
  BRAID_TRY(std::byte* const data, map_shared(handle->fd(), size));
  auto segment = std::make_unique<LinuxSegment>(std::move(handle), data, size);
  BRAID_CHECK(seal(segment->handle(), kSizeSeals | F_SEAL_FUTURE_WRITE, purpose));
  return std::unique_ptr<Segment>(std::move(segment));
}

Segment* SegmentTable::find(const void* address, size_t length) const {
  const auto start = reinterpret_cast<uintptr_t>(address);
  const std::shared_lock lock(mutex_);
  auto after = by_address_.upper_bound(start);
  if (after == by_address_.begin()) return nullptr;
  const auto& [base, segment] = *std::prev(after);
  const size_t offset = start - base;
  if (offset > segment->size() || length > segment->size() - offset) return nullptr;
  return offset == segment->size() ? nullptr : segment;
}

Result<std::unique_ptr<Segment>> map_linux_segment(std::unique_ptr<Handle> handle,
                                                   size_t size_bytes) {
  BRAID_TRY(const size_t size, round_up_to_pages(size_bytes));
  const int seals = ::fcntl(handle->fd(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return make_error(Errc::kProtocol,
                      "descriptor {} is not memory sealed against shrinking; refuse to map it",
                      handle->fd());
  }
  struct stat info;
  if (::fstat(handle->fd(), &info) != 0) return sys_error(errno, "cannot examine shared memory");
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) < size) {
    return make_error(Errc::kProtocol, "shared memory has {} bytes, {} were announced",
                      info.st_size, size);
  }
  const bool published = (seals & F_SEAL_FUTURE_WRITE) != 0;
  const int protection = published ? PROT_READ : PROT_READ | PROT_WRITE;
  BRAID_TRY(std::byte* const data, map_shared(handle->fd(), size, protection));
  // The mapping keeps the memory; a server has thousands of these and few descriptors.
  handle = std::make_unique<Fd>();
  return std::unique_ptr<Segment>(std::make_unique<LinuxSegment>(std::move(handle), data, size));
}

}  // namespace braid::base
