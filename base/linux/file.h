// Files and disks of LinuxHost: opening beneath a root, and what Info says about them.
#pragma once

#include <memory>
#include <string>

#include "base/host.h"
#include "base/linux/fd.h"
#include "base/linux/own_disks.h"

namespace braid::base {

class LinuxFile : public File {
 public:
  LinuxFile(Fd fd, Info info) : fd_(std::move(fd)), info_(std::move(info)) {}
  const Info& info() const override { return info_; }
  Result<uint64_t> note() const override;
  Status set_note(uint64_t note) override;
  Result<Mark> mark() const override;
  Status set_mark(const Mark& mark) override;
  Result<uint64_t> current_size() const override;
  Status set_size(uint64_t size_bytes) override;
  Status secure_erase(uint64_t offset_bytes, uint64_t length_bytes) override;
  void adopt_size(uint64_t size_bytes) override { info_.size_bytes = size_bytes; }
  int fd() const { return fd_.fd(); }

 private:
  /// For a fsync of what is set here. The kernel tells each open file once of a page that it could
  /// not write: this one's is for who flushes it.
  Result<Fd> open_apart() const;

  const Fd fd_;
  Info info_;
};

Result<std::unique_ptr<File>> open_linux_file(const std::string& root, const std::string& name,
                                              const OpenOptions& options,
                                              const OwnDisks& own_disks);

/// Size, block sizes, identity and abilities of an open regular file or block device. `direct`: it
/// was opened with O_DIRECT. Blocks; may read one block.
Result<File::Info> examine_file(int fd, bool direct, bool read_only);

/// What O_DIRECT demands of offsets, lengths and addresses on this file: a power of two, or 0 if it
/// cannot be used. `path_fd` may be an O_PATH descriptor; nothing is opened.
struct DirectAlignment {
  bool known = false;  // false: this kernel or file system does not say
  uint32_t bytes = 0;
};
DirectAlignment direct_alignment(int path_fd);

}  // namespace braid::base
