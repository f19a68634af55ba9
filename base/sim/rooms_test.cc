#include "base/sim/rooms.h"

#include <gtest/gtest.h>

namespace braid::base::sim {
namespace {

constexpr size_t kLong = 32 << 10;

class Rooms : public testing::Test {
 protected:
  SharedBytes sent(size_t bytes, const std::byte*& at) {
    Bytes message = rooms_->take(bytes);
    message.resize(bytes);
    at = message.data();
    return rooms_->share(std::move(message));
  }
  const std::shared_ptr<MessageRooms> rooms_ = std::make_shared<MessageRooms>();
};

TEST_F(Rooms, ThatOfALongMessageIsUsedAgainWhenAllHaveReadIt) {
  const std::byte* at = nullptr;
  SharedBytes one = sent(kLong, at);
  SharedBytes two = one;
  one.reset();
  EXPECT_NE(rooms_->take(kLong).data(), at);
  two.reset();
  EXPECT_NE(rooms_->take(2 * kLong).data(), at) << "it is too short for this one";
  const Bytes again = rooms_->take(kLong / 2 + 1);
  EXPECT_EQ(again.data(), at);
  EXPECT_TRUE(again.empty());
  EXPECT_GE(again.capacity(), kLong);
}

TEST_F(Rooms, MessagesOutliveWhatGaveThemTheirs) {
  std::weak_ptr<MessageRooms> still;
  const std::byte* at = nullptr;
  SharedBytes message;
  {
    const auto others = std::make_shared<MessageRooms>();
    still = others;
    Bytes long_one = others->take(kLong);
    long_one.resize(kLong, std::byte{7});
    at = long_one.data();
    message = others->share(std::move(long_one));
  }
  EXPECT_EQ(message->data(), at);
  EXPECT_EQ(message->back(), std::byte{7});
  message.reset();
  EXPECT_TRUE(still.expired());
}

}  // namespace
}  // namespace braid::base::sim
