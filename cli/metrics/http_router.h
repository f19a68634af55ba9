// One request of one caller: read from its socket, and answered (private to cli/metrics/).
//
// Callers are not trusted. Of what they send no more than kHttpHeadBytesMax are kept, whatever
// their headers announce, and no more than one body is made for them. cpp-httplib gets a request's
// first line alone: by headers it would read a body of any length, and copy its answer for each
// part of it that a caller asks for.
#pragma once

#include <chrono>
#include <memory>

#include "cli/metrics/http.h"

namespace braid::cli {

/// The first line and the headers, to the end of the empty line behind them.
inline constexpr size_t kHttpHeadBytesMax = 16 << 10;

class HttpRouter {
 public:
  explicit HttpRouter(HttpServer::Get get);
  ~HttpRouter();
  HttpRouter(const HttpRouter&) = delete;
  HttpRouter& operator=(const HttpRouter&) = delete;

  /// Reads one request from `fd`, a socket that does not block and stays the caller's, and answers
  /// it: GET and HEAD by `get`, whole whatever Range says; 405 to other methods, 431 where the head
  /// is too long, 414 where the path is (8 KiB), 400 to what is no request. Then sends no more by
  /// `fd`, and throws away what stands behind the head, 256 KiB at most, until the caller is done:
  /// else he might lose the end of the answer. Gives up, without a word, at the deadline, when
  /// `ends_fd` can be read, and when the caller has gone. Any thread, several at once.
  void serve(int fd, int ends_fd, std::chrono::steady_clock::time_point deadline) const;

 private:
  class Library;
  const std::unique_ptr<Library> library_;
};

}  // namespace braid::cli
