// A caller over a real socket, for tests: sends what it is told, and reads until the other side
// ends.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "cli/control_socket.h"

namespace braid::cli {

inline Fd connect_to(uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}

/// Until the end, or the connection is broken off.
inline std::string read_all(const Fd& fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
    all.append(buffer, static_cast<size_t>(n));
  return all;
}

inline std::string ask(uint16_t port, const std::string& request) {
  const Fd fd = connect_to(port);
  EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  return read_all(fd);
}

inline std::string get(uint16_t port, const std::string& path) {
  return ask(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
}

/// Of an answer: what is behind its head.
inline std::string body_of(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? std::string() : answer.substr(end + 4);
}

}  // namespace braid::cli
