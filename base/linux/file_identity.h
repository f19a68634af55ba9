// A name for the bytes of a regular file, for File::Info::identity.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace braid::base {

/// What tells a file from all others. The inode's number alone does not: a file system gives that
/// of a removed file to the next one.
struct FileFacts {
  std::string file_system;  // its id
  uint64_t inode = 0;
  std::string birth;       // empty: the file system keeps none (NFS, FUSE, ext4 with small inodes)
  std::string generation;  // another for each file that has had the inode; empty: not known
  bool lasting = true;     // inode and generation mean the same file in the next mount
};

/// The birth decides where there is one, else the generation. Where neither is known, or does not
/// last, `boot_id` is part of the name: after a restart of the machine it is another file.
std::string file_identity(const FileFacts& facts, const std::string& boot_id);

/// Of an open file: a digest of its handle (the inode's generation is part of it), else what
/// FS_IOC_GETVERSION says, else nothing. Not the handle itself, which opens the file at an NFS
/// server to whoever knows it. Blocks.
Result<std::string> file_generation(int fd);

/// The identity of an open regular file. Blocks; any thread.
Result<std::string> identify_file(int fd);

}  // namespace braid::base
