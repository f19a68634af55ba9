// Access modes: who may have a device open beside whom, and what a refusal tells.
#include <gtest/gtest.h>

#include "bnbd/test_rig.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;
using wire::AccessMode;

class Access : public test::ServedRig {
 protected:
  Access() {
    first = &add_client("first");
    second = &add_client("second");
  }
  base::Result<RemoteDevice*> try_mode(ClientNode& client, AccessMode mode) {
    RemoteDeviceOptions options;
    options.name = "disk.img";
    options.mode = mode;
    return try_open(client, std::move(options));
  }
  void cut(const std::string& ip) { world.fabric().set_port_up(ip, false); }
  void mend(const std::string& ip) { world.fabric().set_port_up(ip, true); }
  bool reaches(const RemoteDevice& device, RemoteState state) {
    return until([&] { return device.state() == state; });
  }

  ClientNode* first = nullptr;
  ClientNode* second = nullptr;
};

TEST_F(Access, a_refusal_names_the_holder_its_address_its_mode_and_how_long_it_has_been_there) {
  open(*first);
  world.run_for(7 * base::kSecond);
  const auto refused = try_mode(*second, AccessMode::kReadWrite);
  ASSERT_EQ(refused.code(), Errc::kBusy);
  const std::string& text = refused.error().message();
  EXPECT_NE(text.find("'disk.img' is open for writing by first (10.0.1.1"), std::string::npos)
      << text;
  EXPECT_NE(text.find("mode rw, for 7 s)"), std::string::npos) << text;
}

TEST_F(Access, a_second_writer_joins_in_mode_migration_only_and_a_third_never) {
  ClientNode& third = add_client("third");
  open(*first);
  EXPECT_EQ(try_mode(*second, AccessMode::kReadWrite).code(), Errc::kBusy);
  RemoteDevice& target = open(*second, "disk.img", AccessMode::kMigration);
  for (const AccessMode mode : {AccessMode::kReadWrite, AccessMode::kMigration}) {
    const auto refused = try_mode(third, mode);
    ASSERT_EQ(refused.code(), Errc::kBusy);
    const std::string& text = refused.error().message();
    EXPECT_NE(text.find("first ("), std::string::npos) << text;
    EXPECT_NE(text.find("second ("), std::string::npos) << text;
    EXPECT_NE(text.find("mode migration"), std::string::npos) << text;
  }
  RemoteDevice& reader = open(third, "disk.img", AccessMode::kReadOnly);
  ASSERT_EQ(write(*second, target, 0, 4096, 2), Errc::kOk);
  EXPECT_TRUE(reads_as(third, reader, 0, 4096, 2));
}

TEST_F(Access, nobody_opens_for_writing_beside_a_target_that_is_alone) {
  open(*first, "disk.img", AccessMode::kMigration);
  EXPECT_EQ(try_mode(*second, AccessMode::kReadWrite).code(), Errc::kBusy);
}

TEST_F(Access, the_source_of_a_migration_comes_back_beside_its_target) {
  RemoteDevice& source = open(*first);
  RemoteDevice& target = open(*second, "disk.img", AccessMode::kMigration);
  cut("10.0.1.1");
  ASSERT_TRUE(reaches(source, RemoteState::kPathDown));
  ASSERT_TRUE(until([&] { return server->sessions().size() == 1; }));
  Io held(BlockOp::kWrite, 0, 4096, 1);
  submit(*first, source, held);
  ASSERT_EQ(write(*second, target, 4096, 4096, 2), Errc::kOk);
  mend("10.0.1.1");
  EXPECT_EQ(wait(held), Errc::kOk);
  EXPECT_EQ(target.state(), RemoteState::kOpen);
}

TEST_F(Access, source_and_target_both_come_back_to_a_restarted_server_in_either_order) {
  for (const bool source_first : {true, false}) {
    RemoteDevice& source = open(*first);
    RemoteDevice& target = open(*second, "disk.img", AccessMode::kMigration);
    cut("10.0.1.1");
    cut("10.0.1.2");
    ASSERT_TRUE(reaches(source, RemoteState::kPathDown));
    ASSERT_TRUE(reaches(target, RemoteState::kPathDown));
    kill_server();
    start_server();
    mend(source_first ? "10.0.1.1" : "10.0.1.2");
    ASSERT_TRUE(reaches(source_first ? source : target, RemoteState::kOpen));
    mend(source_first ? "10.0.1.2" : "10.0.1.1");
    ASSERT_TRUE(reaches(source_first ? target : source, RemoteState::kOpen));
    EXPECT_EQ(write(*first, source, 0, 4096, 1), Errc::kOk);
    EXPECT_EQ(write(*second, target, 4096, 4096, 2), Errc::kOk);
    await(*first, source.close());
    await(*second, target.close());
  }
}

}  // namespace
}  // namespace braid::bnbd
