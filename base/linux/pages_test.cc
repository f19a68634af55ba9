#include "base/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace braid::base {
namespace {

constexpr size_t kPage = 4096;

/// Pages of a mapping of which none has been used.
class Pages : public testing::Test {
 protected:
  static constexpr size_t kCount = 600;  // more than two pieces
  void SetUp() override {
    void* const got =
        ::mmap(nullptr, kCount * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(got, MAP_FAILED);
    begin_ = static_cast<std::byte*>(got);
  }
  void TearDown() override { ::munmap(begin_, kCount * kPage); }
  size_t there() const {
    std::vector<unsigned char> pages(kCount);
    EXPECT_EQ(::mincore(begin_, kCount * kPage, pages.data()), 0);
    size_t count = 0;
    for (const unsigned char page : pages) count += page & 1;
    return count;
  }
  std::byte* begin_ = nullptr;
};

TEST_F(Pages, ComeAllAndWithWhatLiesInThem) {
  begin_[5 * kPage] = std::byte{7};
  ASSERT_EQ(there(), 1U);
  ASSERT_TRUE(populate({begin_, kCount * kPage}).ok());
  EXPECT_EQ(there(), kCount);
  EXPECT_EQ(begin_[5 * kPage], std::byte{7});
}

TEST_F(Pages, OfAPartAreThoseThatItTouches) {
  ASSERT_TRUE(populate({begin_ + kPage + 100, kPage}).ok());
  EXPECT_EQ(there(), 2U);
  EXPECT_TRUE(populate({}).ok());
}

TEST(PagesThatCannotBeHad, AreAnError) {
  const int fd = ::memfd_create("braid-test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, kPage), 0);  // a store behind it would be SIGBUS
  void* const got = ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(got, MAP_FAILED);
  EXPECT_EQ(populate({static_cast<std::byte*>(got), 4 * kPage}).code(), Errc::kNoMemory);
  ::munmap(got, 4 * kPage);
  ::close(fd);
}

}  // namespace
}  // namespace braid::base
