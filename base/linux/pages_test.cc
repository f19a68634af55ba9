#include "base/pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/linux_host.h"

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

/// Of all of this process's mappings of shared memory, by the kernel.
size_t huge_bytes_mapped() {
  std::ifstream in("/proc/self/smaps_rollup");
  std::string word;
  while (in >> word) {
    if (word != "ShmemPmdMapped:") continue;
    size_t kib = 0;
    in >> kib;
    return kib << 10;
  }
  ADD_FAILURE() << "the kernel does not say";
  return 0;
}

TEST(HugePages, HoldAWholeSegmentAndWhatIsLeftInPlainOnes) {
  const auto host = std::move(create_linux_host()).value();
  const size_t size_bytes = 3 * kHugePageBytes + 5 * kPage;
  const auto segment = std::move(host->create_segment(size_bytes, "test")).value();
  ASSERT_EQ(reinterpret_cast<uintptr_t>(segment->data()) % kHugePageBytes, 0U);
  segment->data()[kPage] = std::byte{7};  // stays
  const size_t before = huge_bytes_mapped();
  const Status filled = populate_huge({segment->data(), segment->size()});
  if (filled.code() == Errc::kNotSupported) GTEST_SKIP() << filled.error().message();
  ASSERT_TRUE(filled.ok()) << filled.error().message();
  EXPECT_EQ(huge_bytes_mapped() - before, 3 * kHugePageBytes);
  std::vector<unsigned char> pages(size_bytes / kPage);
  ASSERT_EQ(::mincore(segment->data(), size_bytes, pages.data()), 0);
  EXPECT_TRUE(std::all_of(pages.begin(), pages.end(), [](auto page) { return page & 1; }));
  EXPECT_EQ(segment->data()[kPage], std::byte{7});
  EXPECT_EQ(segment->data()[size_bytes - 1], std::byte{0});
}

TEST(HugePages, OfMemoryThatIsNotThereAreAnError) {
  const int fd = ::memfd_create("braid-test", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, kPage), 0);
  void* const got = ::mmap(nullptr, 2 * kHugePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(got, MAP_FAILED);
  const auto begin = reinterpret_cast<uintptr_t>(got);
  const size_t ahead = (kHugePageBytes - begin % kHugePageBytes) % kHugePageBytes;
  const Status filled = populate_huge({static_cast<std::byte*>(got) + ahead, kHugePageBytes});
  EXPECT_TRUE(filled.code() == Errc::kNotSupported || filled.code() == Errc::kNoMemory);
  ::munmap(got, 2 * kHugePageBytes);
  ::close(fd);
}

}  // namespace
}  // namespace braid::base
