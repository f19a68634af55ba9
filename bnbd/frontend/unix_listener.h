// A listening unix socket with a file: one that a dead process has left is replaced, a live one is
// not, and ours goes with us.
//
// Threads: any one. listen() may wait, a second by default, for another process that listens in the
// same folder just now.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/host.h"
#include "base/result.h"
#include "bnbd/frontend/fd_handle.h"

namespace braid::bnbd {

class UnixListener {
 public:
  /// `path`: absolute. `lock_patience_ns`: how long it waits for others' lock of the folder.
  /// kInvalid: too long, or there is something that is no socket; kBusy: somebody listens there, or
  /// keeps the folder locked; others: the folder is not there or may not be written to. Never
  /// blocks in accept.
  static base::Result<std::unique_ptr<UnixListener>> listen(
      const std::string& path, uint64_t lock_patience_ns = base::kSecond);
  /// Removes the file, if it still is ours.
  ~UnixListener();
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

 private:
  UnixListener(std::string path, UniqueFd socket, dev_t device, ino_t inode)
      : path_(std::move(path)), socket_(std::move(socket)), device_(device), inode_(inode) {}

  const std::string path_;
  const UniqueFd socket_;
  const dev_t device_;
  const ino_t inode_;
};

}  // namespace braid::bnbd
