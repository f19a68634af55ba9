// The HTTP server against callers of all manners, over real sockets.
#include "cli/metrics/http.h"

#include <gmock/gmock.h>

#include <thread>

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
  EXPECT_THAT(ask(port, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(port, "nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(get(port, "/" + std::string(100'000, 'x')), testing::Not(HasSubstr("200 OK")));
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
