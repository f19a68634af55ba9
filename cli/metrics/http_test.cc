// The HTTP server against callers of all manners, over real sockets.
#include "cli/metrics/http.h"

#include <gmock/gmock.h>
#include <netinet/tcp.h>

#include <string>
#include <utility>

#include "cli/metrics/http_router.h"
#include "cli/metrics/test_http.h"

namespace braid::cli {
namespace {

using base::Errc;
using testing::HasSubstr;
using testing::StartsWith;

constexpr uint64_t kLongNs = 60'000'000'000;

std::unique_ptr<HttpServer> start_http(HttpServer::Get answer, uint64_t patience_ns = kLongNs) {
  HttpOptions options;
  options.listen = {.ip = "127.0.0.1", .port = 0};
  options.patience_ns = patience_ns;
  auto server = HttpServer::start(options, std::move(answer));
  EXPECT_TRUE(server.ok()) << server.error().message();
  return server.ok() ? std::move(*server) : nullptr;
}

HttpAnswer echo_path(const std::string& path) {
  return {path == "/lost" ? 404 : 200, "you asked for " + path};
}

struct Poured {
  size_t bytes = 0;  // were taken, by the kernel's buffers, too
  std::string answer;
};
constexpr size_t kPouredMax = 64 << 20;

/// Sends `first`, and `again` for as long as the other side does not close.
Poured pour(uint16_t port, const std::string& first, const std::string& again) {
  const Fd fd = connect_to(port);
  Poured poured;
  for (const std::string* next = &first; poured.bytes < kPouredMax; next = &again) {
    const ssize_t n = ::send(fd.get(), next->data(), next->size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    poured.bytes += static_cast<size_t>(n);
  }
  poured.answer = read_all(fd);
  return poured;
}

/// A request whose head has so many bytes.
std::string head_of(size_t bytes) {
  const std::string begin = "GET /a HTTP/1.1\r\nX: ", end = "\r\n\r\n";
  return begin + std::string(bytes - begin.size() - end.size(), 'x') + end;
}

TEST(Http, answers_a_get_whole_and_unpacked) {
  const auto server = start_http([](const std::string&) {
    return HttpAnswer{200, std::string(5'000'000, 'x')};
  });
  const std::string answer = get(server->address().port, "/metrics");
  EXPECT_THAT(answer.substr(0, 200), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer.substr(0, 200), HasSubstr("Content-Length: 5000000\r\n"));
  EXPECT_EQ(body_of(answer), std::string(5'000'000, 'x'));
}

TEST(Http, tells_status_and_path) {
  const auto server = start_http(echo_path);
  EXPECT_THAT(get(server->address().port, "/lost?x=1"), StartsWith("HTTP/1.1 404"));
  EXPECT_EQ(body_of(get(server->address().port, "/a")), "you asked for /a");
  EXPECT_THAT(ask(server->address().port, "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n"),
              HasSubstr("Content-Length: 16"));
}

TEST(Http, what_is_no_get_gets_nothing) {
  const auto server = start_http([](const std::string&) -> HttpAnswer {
    ADD_FAILURE() << "was asked";
    return {};
  });
  const uint16_t port = server->address().port;
  const std::string post = ask(port, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(post, HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_EQ(body_of(post), "POST: want GET or HEAD\n");
  EXPECT_THAT(ask(port, "nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(port, "GET / HTTP/1.1\n\n"), StartsWith("HTTP/1.1 400")) << "half of its CRLF";
  EXPECT_THAT(get(port, "/" + std::string(9'000, 'x')), StartsWith("HTTP/1.1 414"));
}

TEST(Http, a_head_without_end_is_refused) {
  const auto server = start_http(echo_path);
  const uint16_t port = server->address().port;
  const std::string no_line(65'536, 'x');
  std::string headers;
  while (headers.size() < 65'536) headers += "a: b\r\n";
  const std::pair<std::string, std::string> kinds[] = {
      {"GET /", no_line}, {"GET / HTTP/1.1\r\nX: ", no_line}, {"GET / HTTP/1.1\r\n", headers}};
  for (const auto& [first, again] : kinds) {
    const Poured poured = pour(port, first, again);
    EXPECT_LT(poured.bytes, kPouredMax) << first;
    EXPECT_THAT(poured.answer, StartsWith("HTTP/1.1 431")) << first;
    EXPECT_THAT(body_of(poured.answer), HasSubstr("16384 bytes")) << first;
  }
}

TEST(Http, a_head_may_have_16_kib) {
  const auto server = start_http(echo_path);
  const uint16_t port = server->address().port;
  EXPECT_EQ(body_of(ask(port, head_of(kHttpHeadBytesMax))), "you asked for /a");
  const std::string longer = head_of(kHttpHeadBytesMax + 1);
  EXPECT_THAT(pour(port, longer, "x").answer, StartsWith("HTTP/1.1 431"));
}

TEST(Http, a_head_may_come_in_pieces) {
  const auto server = start_http(echo_path);
  const Fd fd = connect_to(server->address().port);
  const int on = 1;
  ASSERT_EQ(::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
  for (const char c : std::string("GET /a HTTP/1.1\r\nHost: x\r\n\r\n"))
    ASSERT_EQ(::send(fd.get(), &c, 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(body_of(read_all(fd)), "you asked for /a");
}

TEST(Http, is_whole_though_the_caller_says_more) {
  constexpr size_t kBytes = 8'000'000;
  const auto server = start_http([](const std::string&) {
    return HttpAnswer{200, std::string(kBytes, 'x')};
  });
  const Fd fd = connect_to(server->address().port);
  // So that the end of the answer is still the server's when that has written all of it.
  const int small = 64 << 10;
  ASSERT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  const std::string asked = "GET /a HTTP/1.1\r\n\r\n" + std::string(100'000, 'y');
  ASSERT_EQ(::send(fd.get(), asked.data(), asked.size(), MSG_NOSIGNAL), ssize_t(asked.size()));
  EXPECT_EQ(body_of(read_all(fd)).size(), kBytes);
}

TEST(Http, no_body_is_read) {
  const auto server = start_http(echo_path);
  const uint16_t port = server->address().port;
  const std::string chunk = "10000\r\n" + std::string(65'536, 'x') + "\r\n";
  for (const char* const header :
       {"Host: x\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 1000000000\r\n",
        "Expect: 100-continue\r\n", "Content-Type: multipart/form-data; boundary=10000\r\n"}) {
    for (const char* const method : {"POST", "PUT", "DELETE", "PRI", "GET"}) {
      const std::string head = std::string(method) + " / HTTP/1.1\r\n" + header + "\r\n";
      const Poured poured = pour(port, head, chunk);
      EXPECT_LT(poured.bytes, kPouredMax) << head;
      EXPECT_THAT(poured.answer,
                  StartsWith(head.starts_with("GET") ? "HTTP/1.1 200" : "HTTP/1.1 405"))
          << head;
    }
  }
}

TEST(Http, is_whole_whatever_part_is_asked_for) {
  const auto server = start_http([](const std::string&) {
    return HttpAnswer{200, std::string(100'000, 'x')};
  });
  std::string many = "bytes=-";
  while (many.size() < 8'000) many += ",-";
  for (const std::string& range : {many, std::string("bytes=0-3"), std::string("bytes=9-1")}) {
    const std::string answer =
        ask(server->address().port, "GET / HTTP/1.1\r\nHost: x\r\nRange: " + range + "\r\n\r\n");
    EXPECT_THAT(answer.substr(0, 200), StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer.substr(0, 200), HasSubstr("Accept-Ranges: none\r\n"));
    EXPECT_EQ(body_of(answer).size(), 100'000U);
  }
}

TEST(Http, who_is_too_slow_is_cut_off_and_keeps_nobody_waiting) {
  const auto server = start_http(echo_path, 50'000'000);
  const uint16_t port = server->address().port;
  const Fd silent = connect_to(port), second = connect_to(port), third = connect_to(port);
  const std::string half = "GET / HTTP/1.1\r\n";
  ASSERT_GT(::send(second.get(), half.data(), half.size(), MSG_NOSIGNAL), 0);
  EXPECT_EQ(read_all(silent), "");
  EXPECT_THAT(read_all(second), testing::Not(HasSubstr("200")));
  EXPECT_EQ(read_all(third), "");
  EXPECT_EQ(body_of(get(port, "/b")), "you asked for /b");
}

TEST(Http, ends_while_callers_are_connected) {
  auto server = start_http(echo_path);
  const Fd silent = connect_to(server->address().port);
  server.reset();
  EXPECT_EQ(read_all(silent), "");
}

TEST(Http, says_why_it_cannot_listen) {
  const auto server = start_http(echo_path);
  HttpOptions options;
  options.listen = server->address();
  auto second = HttpServer::start(options, echo_path);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.code(), Errc::kExists);
  EXPECT_THAT(second.error().message(),
              HasSubstr("listens at 127.0.0.1:" + std::to_string(options.listen.port)));
  options.listen = {.ip = "203.0.113.9", .port = 0};
  second = HttpServer::start(options, echo_path);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message(), HasSubstr("203.0.113.9 is no address of this machine"));
  options.listen = {.ip = "nowhere", .port = 0};
  second = HttpServer::start(options, echo_path);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message(), HasSubstr("\"nowhere\" is no IP address"));
}

}  // namespace
}  // namespace braid::cli
