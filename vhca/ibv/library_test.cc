// One binary with and without rdma-core: what is said when it is missing or too old. Needs no
// device.
#include "vhca/ibv/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/linux_host.h"
#include "base/log.h"
#include "base/reactor.h"
#include "vhca/ibv_device.h"

namespace braid::vhca::ibv {
namespace {

using base::Errc;
using ::testing::HasSubstr;

constexpr const char* kNoSuchLibrary = "libbraid-no-such-library.so.1";
// A library that surely is there, and has no verbs.
constexpr const char* kOtherLibrary = "libc.so.6";

TEST(IbvLibrary, AMissingLibraryIsNamedWithItsPackage) {
  const auto none = Library::load({.ibverbs = kNoSuchLibrary});
  EXPECT_EQ(none.code(), Errc::kNotSupported);
  EXPECT_THAT(none.error().message(), HasSubstr(kNoSuchLibrary));
  EXPECT_THAT(none.error().message(), HasSubstr("libibverbs1"));
}

TEST(IbvLibrary, ALibraryThatLacksAFunctionIsTooOld) {
  const auto old = Library::load({.ibverbs = kOtherLibrary});
  EXPECT_EQ(old.code(), Errc::kNotSupported);
  EXPECT_THAT(old.error().message(), HasSubstr("ibv_get_device_list@IBVERBS_1.1"));
  EXPECT_THAT(old.error().message(), HasSubstr("too old"));
}

TEST(IbvLibrary, BothLibrariesAreLookedAt) {
  const auto verbs = Library::load({});
  if (!verbs.ok()) GTEST_SKIP() << "no rdma-core here: " << verbs.error().message();
  const auto no_cm = Library::load({.rdmacm = kNoSuchLibrary});
  EXPECT_EQ(no_cm.code(), Errc::kNotSupported);
  EXPECT_THAT(no_cm.error().message(), HasSubstr("librdmacm1"));
  const auto old_cm = Library::load({.rdmacm = kOtherLibrary});
  EXPECT_THAT(old_cm.error().message(), HasSubstr("rdma_create_event_channel@RDMACM_1.0"));
}

/// A process to open devices in.
struct Process {
  Process() {
    base::LinuxHostOptions options;
    options.log_sink = base::make_null_sink();
    host = std::move(*base::create_linux_host(options));
    reactor = std::move(*base::Reactor::create(*host, {}));
  }
  std::unique_ptr<base::Host> host;
  std::unique_ptr<base::Reactor> reactor;
};

TEST(IbvLibrary, AskingForDevicesSaysTheSame) {
  const auto list = list_ibv_devices({.ibverbs = kNoSuchLibrary});
  EXPECT_EQ(list.code(), Errc::kNotSupported);
  Process here;
  const auto device =
      create_ibv_device(*here.host, *here.reactor, "mlx5_0", {.ibverbs = kNoSuchLibrary});
  EXPECT_EQ(device.code(), Errc::kNotSupported);
  EXPECT_THAT(device.error().message(), HasSubstr(kNoSuchLibrary));
}

TEST(IbvLibrary, ADeviceThatDoesNotExistIsNoneOfThoseThatDo) {
  Process here;
  const auto device = create_ibv_device(*here.host, *here.reactor, "no-such-device");
  ASSERT_FALSE(device.ok());
  // Without libraries or drivers: that is the reason.
  if (device.code() == Errc::kNotSupported) return;
  EXPECT_EQ(device.code(), Errc::kNotFound);
  EXPECT_THAT(device.error().message(), HasSubstr("no-such-device"));
}

}  // namespace
}  // namespace braid::vhca::ibv
