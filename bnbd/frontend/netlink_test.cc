#include "bnbd/frontend/netlink.h"

#include <gtest/gtest.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>

#include <cerrno>
#include <cstring>

namespace braid::bnbd {
namespace {

using base::Errc;

template <typename T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> verdict(uint32_t sequence, int error, const std::string& words) {
  NetlinkAttributes attributes;
  if (!words.empty()) attributes.put_string(NLMSGERR_ATTR_MSG, words);
  std::vector<std::byte> bytes;
  struct nlmsghdr head = {};
  head.nlmsg_len =
      static_cast<uint32_t>(sizeof(head) + sizeof(struct nlmsgerr) + attributes.bytes().size());
  head.nlmsg_type = NLMSG_ERROR;
  head.nlmsg_flags = NLM_F_CAPPED | (words.empty() ? 0 : NLM_F_ACK_TLVS);
  head.nlmsg_seq = sequence;
  append(bytes, head);
  struct nlmsgerr body = {};
  body.error = error;
  append(bytes, body);
  bytes.insert(bytes.end(), attributes.bytes().begin(), attributes.bytes().end());
  return bytes;
}

TEST(Netlink, FindsAttributesAmongOthers) {
  NetlinkAttributes inner;
  inner.put_u32(1, 42);
  NetlinkAttributes attributes;
  attributes.put_string(7, "abc");  // padded to 8 bytes
  attributes.put_u64(3, 0x0102030405060708);
  attributes.put_nested(9, inner);
  EXPECT_EQ(attributes.bytes().size(), 8U + 12U + 12U);

  const auto text = find_attribute(attributes.bytes(), 7);
  ASSERT_TRUE(text);
  EXPECT_EQ(text->size(), 4U);
  const auto number = find_attribute(attributes.bytes(), 3);
  ASSERT_TRUE(number);
  uint64_t value = 0;
  std::memcpy(&value, number->data(), sizeof(value));
  EXPECT_EQ(value, 0x0102030405060708U);
  const auto nested = find_attribute(attributes.bytes(), 9);
  ASSERT_TRUE(nested);
  EXPECT_TRUE(find_attribute(*nested, 1));
  EXPECT_FALSE(find_attribute(attributes.bytes(), 8));
}

TEST(Netlink, StopsAtAttributesThatDoNotFit) {
  std::vector<std::byte> bytes;
  append(bytes, nlattr{100, 1});
  EXPECT_FALSE(find_attribute(bytes, 1));
  bytes.clear();
  append(bytes, nlattr{0, 1});  // would never advance
  append(bytes, nlattr{4, 2});
  EXPECT_FALSE(find_attribute(bytes, 2));
}

TEST(Netlink, ReadsTheVerdictAndTheKernelsWords) {
  auto answer = parse_netlink(verdict(5, 0, ""), 5);
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->finished);
  EXPECT_EQ(answer->sys_errno, 0);

  const auto refused = verdict(5, -EBUSY, "in use");
  answer = parse_netlink(refused, 5);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->sys_errno, EBUSY);
  EXPECT_EQ(answer->words, "in use");
}

TEST(Netlink, PassesOverAnswersToOtherRequests) {
  auto answer = parse_netlink(verdict(4, -EBUSY, ""), 5);
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->finished);
}

TEST(Netlink, RefusesWhatIsNotAMessage) {
  auto bytes = verdict(5, 0, "");
  bytes.pop_back();
  EXPECT_EQ(parse_netlink(bytes, 5).code(), Errc::kProtocol);
  bytes = verdict(5, 0, "");
  struct nlmsghdr head = {};
  head.nlmsg_len = 3;
  std::memcpy(bytes.data(), &head, sizeof(head));
  EXPECT_EQ(parse_netlink(bytes, 5).code(), Errc::kProtocol);
}

TEST(Netlink, AsksTheKernelForItsFamilies) {
  auto netlink = GenericNetlink::open();
  if (!netlink.ok()) GTEST_SKIP() << netlink.error().message();
  auto control = netlink->family("nlctrl");
  ASSERT_TRUE(control.ok()) << control.error().message();
  EXPECT_EQ(*control, GENL_ID_CTRL);
  EXPECT_EQ(netlink->family("no-such").code(), Errc::kNotFound);
}

}  // namespace
}  // namespace braid::bnbd
