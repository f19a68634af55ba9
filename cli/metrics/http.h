// A small HTTP server for what may be looked at: GET only, by threads of its own that never wait
// for a caller longer than said (private to cli/metrics/). Sockets, threads and deadlines are here,
// as cpp-httplib's bound no slow caller; a request and its answer are in http_router.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "vhca/device.h"

namespace braid::cli {

struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};

struct HttpOptions {
  vhca::Address listen;  // port 0: a free one
  unsigned threads = 2;  // as many callers are answered at once; others wait at the door
  int backlog = 16;      // so many of them
  /// From accepting a connection to its end; who takes longer is cut off.
  uint64_t patience_ns = 5'000'000'000;
};

class HttpServer {
 public:
  /// What is at a path; called on the threads of the server, by several at once.
  using Get = std::function<HttpAnswer(const std::string& path)>;

  /// kExists: somebody listens there; kInvalid: no address of this machine. Each names it.
  static base::Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options, Get get);
  /// Cuts off who is connected, and waits for `get`.
  virtual ~HttpServer() = default;
  virtual vhca::Address address() const = 0;  // with the chosen port
};

}  // namespace braid::cli
