// Which device a path or a listener goes by. The RDMA devices are TCP ones that lie under the
// names, with what the machine says of addresses and routes made up.
#include "reach/hcas.h"

#include <gtest/gtest.h>

#include <set>
#include <span>

#include "base/linux_host.h"
#include "base/log.h"
#include "vhca/port_faults.h"
#include "vhca/soft_device.h"

namespace braid::reach {
namespace {

using base::Errc;
using base::make_error;
using base::Result;

class HcasTest : public testing::Test {
 protected:
  HcasTest() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    host_ = std::move(*base::create_linux_host(options));
    reactor_ = std::move(*base::Reactor::create(*host_, {}));
  }
  RdmaMachine machine() {
    RdmaMachine made;
    made.usable = [] { return Result<std::vector<std::string>>({"hca_a", "hca_b"}); };
    made.device_with = [](const std::string& ip) -> Result<std::string> {
      if (ip == "127.0.0.2" || ip == "127.0.0.4") return std::string("hca_a");
      if (ip == "127.0.0.3") return std::string("hca_b");
      if (ip == "127.0.0.9") return std::string("hca_z");
      return make_error(Errc::kNotFound, "no device has {}", ip);
    };
    made.source_to = [](const std::string& ip) -> Result<std::string> {
      if (ip == "10.0.0.1") return std::string("127.0.0.3");
      if (ip == "10.0.0.9") return std::string("127.0.0.9");
      return make_error(Errc::kNotFound, "no route to {}", ip);
    };
    made.open = [this](base::Host& host, base::Reactor& reactor, const std::string& name,
                       const std::string& source) -> Result<std::unique_ptr<vhca::Device>> {
      ++opened_;
      if (name == "gone") return make_error(Errc::kNotFound, "no device is called {}", name);
      const std::string ip = source.empty() ? "127.0.0.1" : source;
      return vhca::create_tcp_device(host, reactor, {.name = name + "@" + source, .ip = ip});
    };
    return made;
  }
  Result<std::unique_ptr<Hcas>> open(const std::string& devices) {
    HcaOptions options;
    options.device = devices;
    return Hcas::open(*host_, *reactor_, options, machine());
  }
  static std::string device_of(Hcas& hcas, const std::string& path) {
    auto device = hcas.for_path(*parse_path(path));
    return device.ok() ? (*device)->info().name : device.error().message();
  }

  std::unique_ptr<base::Host> host_;
  std::unique_ptr<base::Reactor> reactor_;
  int opened_ = 0;
};

TEST_F(HcasTest, devices_are_named_one_by_one_or_all_at_once) {
  EXPECT_EQ(*parse_devices("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(parse_devices("")->empty());
  for (const char* wrong : {"a,", ",a", "a,,b", "a,b,a", "a,rdma", "soft0,a"})
    EXPECT_EQ(parse_devices(wrong).code(), Errc::kInvalid) << wrong;
  EXPECT_EQ((*open("rdma"))->text(), "RDMA devices hca_a, hca_b");
  EXPECT_TRUE((*open(""))->soft());
  EXPECT_TRUE((*open("soft0"))->soft());
  EXPECT_FALSE((*open("hca_b"))->soft());
  EXPECT_EQ(open("hca_a,gone").code(), Errc::kNotFound);
}

TEST_F(HcasTest, a_path_goes_by_the_device_that_has_its_source) {
  auto hcas = std::move(*open("rdma"));
  EXPECT_EQ(device_of(*hcas, "127.0.0.3@10.0.0.5"), "hca_b@127.0.0.3");
  EXPECT_EQ(device_of(*hcas, "127.0.0.2@10.0.0.5"), "hca_a@127.0.0.2");
  EXPECT_EQ(device_of(*hcas, "127.0.0.4@10.0.0.5"), "hca_a@127.0.0.4");
  const int opened = opened_;
  EXPECT_EQ(device_of(*hcas, "127.0.0.4@10.0.0.6"), "hca_a@127.0.0.4");
  EXPECT_EQ(opened_, opened) << "a device for each source";
}

TEST_F(HcasTest, a_source_of_no_device_of_the_node_is_refused) {
  auto hcas = std::move(*open("hca_a"));
  for (const char* path : {"127.0.0.3@10.0.0.5", "127.0.0.9@10.0.0.5", "127.0.0.8@10.0.0.5"}) {
    const auto refused = hcas->for_path(*parse_path(path));
    ASSERT_EQ(refused.code(), Errc::kNotFound) << path;
    EXPECT_NE(refused.error().message().find(path), std::string::npos) << path;
  }
}

TEST_F(HcasTest, without_a_source_the_routes_say) {
  auto hcas = std::move(*open("rdma"));
  EXPECT_EQ(device_of(*hcas, "10.0.0.1"), "hca_b@");
  const std::string why = device_of(*hcas, "10.0.0.9");
  EXPECT_NE(why.find("hca_z"), std::string::npos) << why;
  EXPECT_NE(why.find("SOURCE@10.0.0.9"), std::string::npos) << why;
  EXPECT_EQ(hcas->for_path(*parse_path("10.0.0.7")).code(), Errc::kNotFound);
}

TEST_F(HcasTest, a_single_device_finds_its_way_by_itself) {
  auto hcas = std::move(*open("hca_a"));
  EXPECT_EQ(device_of(*hcas, "10.0.0.9"), "hca_a@");
}

TEST_F(HcasTest, a_link_that_is_down_is_told_once_of_all_that_its_adapter_is_open_as) {
  RdmaMachine both = machine();
  both.open = [](base::Host& host, base::Reactor& reactor, const std::string& name,
                 const std::string& source) {
    return vhca::create_tcp_device(
        host, reactor,
        {.name = name, .ip = source.empty() ? "127.0.0.1" : source, .port_faults = true});
  };
  const HcaOptions options{.device = "hca_a,hca_b"};
  auto hcas = std::move(*Hcas::open(*host_, *reactor_, options, both));
  std::vector<const vhca::Device*> of_a{&hcas->first()};
  for (const char* path : {"127.0.0.2@10.0.0.5", "127.0.0.4@10.0.0.5"})
    of_a.push_back(*hcas->for_path(*parse_path(path)));
  ASSERT_TRUE(hcas->for_path(*parse_path("127.0.0.3@10.0.0.5")).ok());
  std::vector<std::vector<const vhca::Device*>> told;
  hcas->on_link_down([&](std::span<const vhca::Device* const> adapter, uint8_t port) {
    EXPECT_EQ(port, 1);
    told.emplace_back(adapter.begin(), adapter.end());
  });
  ASSERT_TRUE(vhca::set_port_faults(hcas->first(), 1, {.down = true}).ok());
  reactor_->run_until_done([](base::Reactor& home, const auto& all) -> base::Task<void> {
    while (all.empty()) co_await home.sleep_ns(0);
  }(*reactor_, told));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(std::set(told[0].begin(), told[0].end()), std::set(of_a.begin(), of_a.end()));
}

TEST_F(HcasTest, a_listener_is_where_its_address_is) {
  auto hcas = std::move(*open("rdma"));
  auto found = std::move(*hcas->endpoints({{"127.0.0.3", 0}, {"127.0.0.2", 7}}));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].device->info().name, "hca_b@");
  EXPECT_EQ(found[1].device->info().name, "hca_a@");
  EXPECT_EQ(found[1].listen.port, 7);
  found = std::move(*hcas->endpoints({{"0.0.0.0", 7}}));
  ASSERT_EQ(found.size(), 2u) << "a wildcard is every device's";
  EXPECT_NE(found[0].device, found[1].device);
  EXPECT_EQ(hcas->endpoints({{"127.0.0.9", 7}}).code(), Errc::kNotFound);
  EXPECT_EQ(hcas->endpoints({{"0.0.0.0", 0}}).code(), Errc::kInvalid);
}

}  // namespace
}  // namespace braid::reach
