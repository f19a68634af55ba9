#include "reach/device_events.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "base/linux_host.h"
#include "base/log.h"
#include "vhca/port_faults.h"
#include "vhca/soft_device.h"

namespace braid::reach {
namespace {

class Lines : public base::LogSink {
 public:
  void write(base::LogLevel level, std::string_view, std::string_view message) override {
    const std::lock_guard guard(mutex_);
    lines_.push_back(std::string(base::to_string(level)) + " " + std::string(message));
  }
  bool have(const std::string& line) {
    const std::lock_guard guard(mutex_);
    for (const std::string& each : lines_)
      if (each == line) return true;
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(DeviceEvents, a_port_that_loses_its_link_and_has_it_again_is_told) {
  const auto lines = std::make_shared<Lines>();
  base::LinuxHostOptions options;
  options.log_sink = lines;
  const auto host = std::move(*base::create_linux_host(options));
  const auto reactor = std::move(*base::Reactor::create(*host, {}));
  const auto device = std::move(*vhca::create_tcp_device(
      *host, *reactor, {.name = "soft7", .ip = "127.0.0.1", .port_faults = true}));
  unsigned down = 0;
  const DeviceEvents events(*reactor, *device, [&](const vhca::Device& which, uint8_t port) {
    EXPECT_EQ(&which, device.get());
    EXPECT_EQ(port, 1);
    ++down;
  });
  const auto until_told = [&](const std::string& line) {
    reactor->run_until_done(
        [](base::Reactor& home, Lines& all, std::string wanted) -> base::Task<void> {
          while (!all.have(wanted)) co_await home.sleep_ns(0);
        }(*reactor, *lines, line));
  };

  ASSERT_TRUE(vhca::set_port_faults(*device, 1, {.down = true}).ok());
  until_told(
      "warning device soft7 port 1: its link is down: what goes by it waits, or takes other "
      "paths");
  ASSERT_TRUE(vhca::set_port_faults(*device, 1, {}).ok());
  until_told("info device soft7 port 1: its link is up");
  EXPECT_EQ(down, 1U);
}

}  // namespace
}  // namespace braid::reach
