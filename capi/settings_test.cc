// When the settings of a context are fixed: once it has a device or a descriptor, and not before.
#include <gmock/gmock.h>

#include <cerrno>

#include "capi/test_context.h"

namespace braid::capi {
namespace {

class CApiSettings : public testing::Test {
 protected:
  int set(const char* name, const char* value) const {
    return ::braid_set(context_.get(), name, value);
  }
  int open_in_vain(const char* target) const {
    braid_device* device = nullptr;
    const int status = ::braid_open(context_.get(), target, &device);
    EXPECT_EQ(device, nullptr);
    return status;
  }
  void expect_fixed() const {
    for (const char* const name : {"device", "wire", "queue-depth", "name", "log"}) {
      EXPECT_EQ(set(name, "4"), -EBUSY) << name;
      EXPECT_THAT(::braid_error(context_.get()), testing::HasSubstr("another context")) << name;
    }
    EXPECT_EQ(set("poll", "2ms"), 0) << "it holds for the next call";
    EXPECT_EQ(set("access", "ro"), 0) << "it holds for what is opened next";
  }
  /// How many flushes a device takes at once.
  int depth_of(braid_device* device) const {
    const std::vector<braid_io> flushes(300, braid_io{.op = BRAID_OP_FLUSH, .device = device});
    return ::braid_submit(context_.get(), flushes.data(), static_cast<unsigned>(flushes.size()));
  }
  const test::Context context_ = test::new_context();
};

TEST_F(CApiSettings, AnOpenThatFailedFixesNothing) {
  EXPECT_EQ(open_in_vain("127.0.0.1:1/x"), -ECONNREFUSED);
  EXPECT_EQ(open_in_vain("file:/no/such/disk.img"), -ENOENT);
  EXPECT_EQ(set("device", "rdma"), 0) << ::braid_error(context_.get());
  EXPECT_EQ(set("device", "soft0"), 0);
  EXPECT_EQ(set("queue-depth", "2"), 0);
  braid_io flush{.op = BRAID_OP_FLUSH};
  EXPECT_EQ(::braid_submit(context_.get(), &flush, 1), -EINVAL) << "there is no device";
  EXPECT_EQ(depth_of(test::open(context_, "memory:1M")), 2) << "as it was set after the failures";
}

TEST_F(CApiSettings, ADeviceFixesThoseOfTheContextAlsoWhenItIsClosed) {
  braid_device* const disk = test::open(context_, "memory:1M");
  expect_fixed();
  EXPECT_EQ(::braid_close(disk), 0);
  EXPECT_EQ(open_in_vain("127.0.0.1:1/x"), -ECONNREFUSED);
  expect_fixed();
}

TEST_F(CApiSettings, ADescriptorFixesThemToo) {
  EXPECT_EQ(open_in_vain("127.0.0.1:1/x"), -ECONNREFUSED);
  const int descriptor = ::braid_fd(context_.get());
  ASSERT_GE(descriptor, 0);
  EXPECT_EQ(open_in_vain("127.0.0.1:1/x"), -ECONNREFUSED);
  expect_fixed();
  EXPECT_EQ(::braid_fd(context_.get()), descriptor);
}

}  // namespace
}  // namespace braid::capi
