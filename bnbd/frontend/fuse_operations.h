// The only place that knows libfuse: its callbacks, and the calls that FuseServer makes.
#pragma once

#include <cstddef>
#include <cstdint>

struct fuse_req;
struct fuse_session;

namespace braid::bnbd {

class FuseServer;

struct FuseOperations {
  /// A session on a descriptor of /dev/fuse, which it closes when it is destroyed; null, and the
  /// descriptor untouched, if there is no memory.
  static fuse_session* create_session(FuseServer& server, uint32_t payload_bytes, int fuse_fd);
  static void destroy_session(fuse_session* session);
  /// Runs the callback for one request as read from the descriptor.
  static void process(fuse_session* session, std::byte* request, size_t size_bytes);

  /// Each ends the request. A kernel that has given the request up meanwhile is no error.
  static void reply_error(fuse_req* request, int sys_errno);  // 0: success
  static void reply_data(fuse_req* request, const std::byte* data, uint64_t size_bytes);
  static void reply_written(fuse_req* request, uint64_t size_bytes);
};

}  // namespace braid::bnbd
