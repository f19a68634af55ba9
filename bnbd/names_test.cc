// What names in OPEN mean, and which versions speak with each other: what Linux's peers do.
#include <gtest/gtest.h>

#include "bnbd/server/export_name.h"
#include "bnbd/test_fake_server.h"
#include "bnbd/test_rig.h"
#include "trs/test_keys.h"

namespace braid::bnbd {
namespace {

using base::Errc;
using test::ClientNode;
using test::Io;

TEST(ExportName, has_one_spelling_and_never_begins_with_a_slash) {
  for (const char* name : {"vm/a.img", "/vm/a.img", "//vm//a.img", "./vm/./a.img", "vm/a.img/"}) {
    EXPECT_EQ(normal_export_name(name), "vm/a.img");
  }
  EXPECT_EQ(normal_export_name("/"), "/") << "refused where files are opened";
  EXPECT_EQ(normal_export_name("."), ".");
  EXPECT_EQ(normal_export_name("../x"), "../x");
}

TEST(ExportName, of_memory_has_1_to_254_bytes_in_its_one_spelling) {
  for (const std::string& name :
       {std::string("a"), std::string("a=b"), "/" + std::string(254, 'x')})
    EXPECT_TRUE(check_export_name(name).ok()) << name;
  for (const std::string& name : {std::string(), std::string(255, 'x')})
    EXPECT_EQ(check_export_name(name).code(), Errc::kInvalid) << name;
}

TEST(ExportName, lies_in_the_directory_of_the_session_if_there_is_one_for_each) {
  const ExportRoot shared{"/srv", false};
  const ExportRoot each{"/srv", true};
  EXPECT_EQ(*server::file_name(shared, "vm7", "/a.img"), "a.img");
  EXPECT_EQ(*server::file_name(each, "vm7", "/a.img"), "vm7/a.img");
  for (const char* session : {"", ".", "..", "../vm8", "vm7/x", "/"}) {
    EXPECT_EQ(server::file_name(each, session, "a.img").code(), Errc::kInvalid) << session;
  }
}

TEST(ExportName, the_place_of_the_session_is_the_last_part_of_the_root) {
  EXPECT_EQ(parse_export_root("/srv/disks")->folder, "/srv/disks");
  EXPECT_FALSE(parse_export_root("/srv/disks")->per_session);
  for (const char* text : {"/srv/disks/%SESSNAME%", "/srv/disks/%SESSNAME%/"}) {
    EXPECT_EQ(parse_export_root(text)->folder, "/srv/disks");
    EXPECT_TRUE(parse_export_root(text)->per_session);
  }
  EXPECT_EQ(parse_export_root("/%SESSNAME%")->folder, "/");
  for (const char* text : {"%SESSNAME%", "/srv/x%SESSNAME%", "/srv/%SESSNAME%x",
                           "/srv/%SESSNAME%/disks", "/%SESSNAME%/%SESSNAME%"}) {
    EXPECT_EQ(parse_export_root(text).code(), Errc::kInvalid) << text;
  }
}

using trs::testing::test_key;
using trs::testing::test_ring;

class Names : public test::Rig {};

TEST_F(Names, each_session_sees_the_directory_of_its_name) {
  server_machine.add_disk("/exports/first/own.img", {.size_bytes = 1 << 20});
  server_machine.add_disk("/exports/second/own.img", {.size_bytes = 2 << 20});
  exports.root = "/exports/%SESSNAME%";
  exports.named = {{NamedExport::Kind::kMemory, "ram", 1 << 20}};
  start_server();
  ClientNode& first = add_client("first");
  ClientNode& second = add_client("second");
  EXPECT_EQ(open(first, "own.img").info().size_bytes, 1u << 20);
  EXPECT_EQ(open(second, "/own.img").info().size_bytes, 2u << 20) << "both write: two files";
  EXPECT_EQ(try_open(first, {.name = "disk.img"}).code(), Errc::kNotFound);
  EXPECT_EQ(try_open(first, {.name = "second/own.img"}).code(), Errc::kNotFound);
  EXPECT_EQ(try_open(first, {.name = "../second/own.img"}).code(), Errc::kInvalid);
  open(first, "ram");
  EXPECT_EQ(try_open(second, {.name = "ram"}).code(), Errc::kBusy) << "it is everybody's";
}

// RNBD's weakness: who calls itself vm8 has the disks of vm8.
TEST_F(Names, who_has_a_key_sees_the_directory_of_its_key_whatever_it_calls_itself) {
  server_machine.add_disk("/exports/vm7/own.img", {.size_bytes = 1 << 20});
  server_machine.add_disk("/exports/vm8/own.img", {.size_bytes = 2 << 20});
  server_machine.add_disk("/exports/vm8/secret.img", {.size_bytes = 2 << 20});
  exports.root = "/exports/%SESSNAME%";
  exports.transport.keys = test_ring({test_key("vm7"), test_key("vm8")});
  start_server();
  session_options.transport.key = test_key("vm7");
  ClientNode& liar = add_client("vm8");
  EXPECT_EQ(open(liar, "own.img").info().size_bytes, 1u << 20);
  EXPECT_EQ(try_open(liar, {.name = "secret.img"}).code(), Errc::kNotFound);
  session_options.transport.key = test_key("vm8");
  ClientNode& owner = add_client("other");
  EXPECT_EQ(open(owner, "own.img").info().size_bytes, 2u << 20);
}

TEST_F(Names, a_name_may_be_as_long_as_the_message_has_room_and_begin_with_a_slash) {
  const std::string longest = std::string(126, 'a') + "/" + std::string(127, 'b');
  server_machine.add_disk("/exports/" + longest, {.size_bytes = 1 << 20});
  start_server();
  ClientNode& client = add_client();
  EXPECT_EQ(open(client, longest).info().size_bytes, 1u << 20);
  EXPECT_EQ(try_open(client, {.name = longest + "c"}).code(), Errc::kInvalid);
  EXPECT_EQ(open(client, "/disk.img").info().size_bytes, 4u << 20);
}

TEST_F(Names, a_device_is_open_once_in_a_session_however_it_is_spelled) {
  start_server();
  ClientNode& client = add_client();
  RemoteDevice& device = open(client, "disk.img");
  const auto again = try_open(client, {.name = "/disk.img"});
  ASSERT_EQ(again.code(), Errc::kExists);
  EXPECT_NE(again.error().message().find("as 'disk.img'"), std::string::npos)
      << again.error().message();
  EXPECT_EQ(write(client, device, 0, 4096, 1), Errc::kOk);
}

class Versions : public test::FakeRig {};

TEST_F(Versions, a_server_of_version_1_is_served_with) {
  script.version = 1;
  ClientNode& client = add_client();
  RemoteDevice& device = open(client);
  EXPECT_EQ(write(client, device, 0, 4096, 1), Errc::kOk);
}

TEST_F(Versions, a_server_that_answers_more_than_it_was_offered_is_refused) {
  script.version = 3;
  ClientNode& client = add_client("client", /*refused=*/Errc::kProtocol);
  EXPECT_EQ(client.session, nullptr);
}

}  // namespace
}  // namespace braid::bnbd
