// Any bytes from a caller of the metrics, over a socket: whoever is answered is answered once and
// with no more than the one body, and only GET and HEAD reach what is there.
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/control_socket.h"
#include "cli/metrics/http_router.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/two_party.h"

namespace {

using namespace braid::cli;
using braid::fuzz::Reached;
using braid::fuzz::require;

Reached whole("a GET is answered"), headed("a HEAD is answered"),
    refused("another method is refused"), nonsense("what is no request is refused"),
    far("a path that is too long is refused"), endless("a head that is too long is refused"),
    silent("who ends in the middle of a head gets no answer");

constexpr size_t kInputMax = 64 << 10;
constexpr size_t kPathMax = 8192;
constexpr size_t kBodyBytes = 1000;
constexpr size_t kHeadMax = 400;     // of an answer
constexpr size_t kRefusalMax = 100;  // its words

struct Heard {
  std::string answer;
  unsigned asked = 0;  // so often was what is there asked for it
};

Heard hear(std::string_view bytes) {
  int both[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0,
          "there are sockets");
  const Fd caller(both[0]), server(both[1]), ends(::eventfd(0, EFD_CLOEXEC));
  require(ends.get() >= 0, "there are events");
  const ssize_t sent = ::send(caller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  require(sent == static_cast<ssize_t>(bytes.size()), "a socket takes the input");
  require(::shutdown(caller.get(), SHUT_WR) == 0, "a caller may end");
  Heard heard;
  const HttpRouter router([&heard](const std::string& path) {
    ++heard.asked;
    require(path.size() <= kPathMax, "a path is bounded");
    return HttpAnswer{200, std::string(kBodyBytes, 'x')};
  });
  router.serve(server.get(), ends.get(),
               std::chrono::steady_clock::now() + std::chrono::seconds(60));
  require(::shutdown(server.get(), SHUT_WR) == 0, "the server may end");
  char buffer[4096];
  for (ssize_t n = 0; (n = ::recv(caller.get(), buffer, sizeof buffer, 0)) > 0;)
    heard.answer.append(buffer, static_cast<size_t>(n));
  return heard;
}

/// The library overlooks spaces in front of it.
bool begins_with(std::string_view bytes, std::string_view method) {
  const size_t at = bytes.find_first_not_of(" \t");
  return at != bytes.npos && bytes.substr(at).starts_with(method);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  if (size_bytes > kInputMax) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data), size_bytes);
  const auto [answer, asked] = hear(bytes);
  require(asked <= 1, "an answer is made once");
  silent.count(answer.empty());
  if (answer.empty()) {
    require(asked == 0, "who asks for what is there is answered");
    return 0;
  }
  const size_t end = answer.find("\r\n\r\n");
  require(answer.starts_with("HTTP/1.1 ") && end <= kHeadMax, "an answer has a head");
  const size_t body_bytes = answer.size() - (end + 4);
  const std::string status = answer.substr(9, 3);
  if (asked == 1) {
    const bool head = begins_with(bytes, "HEAD");
    require(head || begins_with(bytes, "GET"), "only GET and HEAD reach what is there");
    require(status == "200" && body_bytes == (head ? 0 : kBodyBytes), "the body is there once");
    (head ? headed : whole).count();
    return 0;
  }
  require(body_bytes <= kRefusalMax, "a refusal is short");
  require(status == "400" || status == "405" || status == "414" || status == "431",
          "a refusal says why");
  nonsense.count(status == "400");
  refused.count(status == "405");
  far.count(status == "414");
  endless.count(status == "431");
  return 0;
}
