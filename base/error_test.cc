#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

#include "base/result.h"

namespace braid::base {
namespace {

constexpr auto kLast = static_cast<uint16_t>(Errc::kDead);

TEST(Errc, EachCodeHasAWordOfItsOwnAndAnErrno) {
  std::set<std::string> words;
  for (uint16_t i = 0; i <= kLast; ++i) {
    const auto code = static_cast<Errc>(i);
    EXPECT_TRUE(words.insert(std::string(to_string(code))).second) << i;
    EXPECT_EQ(errno_from_errc(code) == 0, code == Errc::kOk) << i;
  }
  EXPECT_EQ(words.count("unknown"), 0u) << "that is for values outside";
  EXPECT_EQ(to_string(static_cast<Errc>(kLast + 1)), "unknown");
}

TEST(Errc, TheErrnoOfACodeMeansThatCodeAgain) {
  for (uint16_t i = 0; i < kLast; ++i) {  // kDead is seen by simulations only
    const auto code = static_cast<Errc>(i);
    EXPECT_EQ(errc_from_errno(errno_from_errc(code)), code) << to_string(code);
  }
  EXPECT_EQ(errc_from_errno(99999), Errc::kIo);
  // Who sends descriptors comes again when the peer has read.
  EXPECT_EQ(errc_from_errno(ETOOMANYREFS), Errc::kWouldBlock);
}

TEST(Error, SaysTheOuterCircumstancesFirst) {
  const Error inner = sys_error(ENOENT, "cannot open \"x\"");
  EXPECT_EQ(inner.code(), Errc::kNotFound);
  const Error outer = inner.with("while opening export {}", 7);
  EXPECT_EQ(outer.code(), Errc::kNotFound);
  EXPECT_EQ(outer.message(),
            "while opening export 7: cannot open \"x\": No such file or directory");
}

Result<int> positive(int value) {
  if (value <= 0) return make_error(Errc::kInvalid, "{} is not positive", value);
  return value;
}

Result<int> sum(int a, int b) {
  BRAID_TRY(const int x, positive(a));
  BRAID_TRY(const int y, positive(b));
  return x + y;
}

Status check(int value) {
  BRAID_CHECK(sum(value, 1));
  return ok_status();
}

TEST(Result, TryGivesTheValueOrReturnsTheError) {
  EXPECT_EQ(sum(2, 3).value(), 5);
  EXPECT_EQ(sum(2, -3).error().message(), "-3 is not positive");
  EXPECT_TRUE(check(1).ok());
  EXPECT_EQ(check(-1).code(), Errc::kInvalid);
}

TEST(ResultDeathTest, TheValueOfAnErrorIsABugThatNamesItsPlace) {
  Result<int> failed = make_error(Errc::kBusy, "no");
  EXPECT_DEATH((void)failed.value(), "result.h:[0-9]+: .*ok\\(\\)");
}

}  // namespace
}  // namespace braid::base
