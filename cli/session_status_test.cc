// What is told of sessions with peers that are not Braid's, as JSON and to people.
#include "cli/session_status.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/verbs/verbs.h"

namespace braid::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

bnbd::SessionStatus client(const std::string& name, bool braid) {
  bnbd::SessionStatus status;
  status.name = name;
  status.peer = "10.0.0.7";
  status.path_peers = {"10.0.0.7", "10.1.0.7"};
  status.chunk_guards = {"open", "open"};
  status.braid_peer = status.takes_notices = braid;
  return status;
}

TEST(SessionStatus, OfALinuxClientTellsWhatDoesNotHold) {
  EXPECT_TRUE(client_session(client("ours", true))["not_held"].empty());
  const json told = client_session(client("theirs", false))["not_held"];
  for (const char* words :
       {"the same disk", "acknowledged writes", "claims no tenure", "numbers no requests",
        "fails it at once", "is closed here", "new size", "it gets an errno", "--reactors",
        "may stay stuck while the path counts as up", "path's `reconnect` below",
        "unmap by force alone waits", "it is waited for 30 s, and holds them", "smaller by force",
        "write-zeroes", "cannot change data which was checked already"})
    EXPECT_THAT(told.dump(), HasSubstr(words));
}

// With one path open what was checked can still be changed by it.
TEST(SessionStatus, OfALinuxClientTellsThatItCanChangeDataUnlessEachPathIsGuarded) {
  bnbd::SessionStatus status = client("theirs", false);
  for (const auto& [guards, guarded] : std::vector<std::pair<std::vector<std::string>, bool>>{
           {{"copy", "copy"}, true}, {{"copy", "open"}, false}, {{}, false}}) {
    status.chunk_guards = guards;
    const std::string told = client_session(status)["not_held"].dump();
    EXPECT_EQ(told.find("which was checked already") == std::string::npos, guarded) << told;
    EXPECT_THAT(told, HasSubstr("claims no tenure"));
  }
}

TEST(SessionStatus, OfALinuxServerTellsWhatDoesNotHold) {
  trs::SessionLimits limits;
  limits.braid_peer = true;
  EXPECT_TRUE(not_held_by_server(limits, false).empty());
  limits.braid_peer = false;
  const std::string told = not_held_by_server(limits, false).dump();
  for (const char* words : {"names no identity", "acknowledged writes", "change of writers",
                            "fences no path", "all data of a read", "its key stays valid",
                            "growth is noticed", "operator closes", "gives an errno"})
    EXPECT_THAT(told, HasSubstr(words));
  const std::string guarded = not_held_by_server(limits, true).dump();
  EXPECT_THAT(guarded, Not(HasSubstr("its key stays valid")));
}

TEST(SessionStatus, ForPeopleNamesThePeerAndWhatDoesNotHoldOnce) {
  json sessions = json::array();
  for (const auto& status : {client("ours", true), client("a", false), client("b", false)})
    sessions.push_back(client_session(status));
  const std::string text = client_sessions_text(sessions);
  EXPECT_THAT(text, testing::ContainsRegex("ours +Braid +10.0.0.7, 10.1.0.7 "));
  EXPECT_THAT(text, testing::ContainsRegex("a +Linux +10.0.0.7"));
  const size_t first = text.find("claims no tenure");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("claims no tenure", first + 1), std::string::npos) << text;
  bnbd::SessionStatus guarded = client("c", false);
  guarded.chunk_guards = {"copy"};
  sessions.push_back(client_session(guarded));
  EXPECT_THAT(client_sessions_text(sessions), HasSubstr("which was checked already"))
      << "what holds with one does not hold with the others";
  const std::string all_ours = client_sessions_text(json::array({sessions[0]}));
  EXPECT_THAT(all_ours, Not(HasSubstr("does not hold")));
}

TEST(SessionStatus, TellsWhetherNewsArePushed) {
  EXPECT_EQ(client_session(client("ours", true))["news"], "pushed");
  EXPECT_EQ(client_session(client("theirs", false))["news"], "none");
  bnbd::SessionStatus older = client("older", true);
  older.takes_notices = false;
  const json told = client_session(older);
  EXPECT_EQ(told["news"], "asked for");
  EXPECT_THAT(client_sessions_text(json::array({told})),
              HasSubstr("older    Braid, asks for news"));
}

TEST(SessionStatus, CountsByPathAndConnection) {
  bnbd::SessionStatus status = client("ours", true);
  status.path_statistics = {{{9, 9, 9, 9, 9}, {1, 4096, 2, 8192, 0}, {3, 12288, 0, 0, 1}}, {}};
  const json told = client_session(status)["path_statistics"];
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0]["peer"], "10.0.0.7");
  EXPECT_EQ(told[0]["reads"], 4) << "connection 0 carries no I/O";
  EXPECT_EQ(told[0]["read_bytes"], 16384);
  EXPECT_EQ(told[0]["writes"], 2);
  EXPECT_EQ(told[0]["write_bytes"], 8192);
  EXPECT_EQ(told[0]["errors"], 1);
  EXPECT_EQ(told[0]["connections"][2]["cid"], 2);
  EXPECT_EQ(told[0]["connections"][2]["read_bytes"], 12288);
  EXPECT_EQ(told[1]["reads"], 0);
  json session = client_session(status);
  EXPECT_THAT(client_sessions_text(json::array({session})),
              testing::ContainsRegex("10.1.0.7 +- +2 +16.0 KiB +8.0 KiB "));
}

TEST(SessionStatus, OfAnotherVersionIsShownAsFarAsItTells) {
  const std::string text =
      client_sessions_text(json::array({{{"name", "old"}, {"peer", "10.0.0.9"}}}));
  EXPECT_THAT(text, testing::ContainsRegex("old +- +10.0.0.9"));
}

}  // namespace
}  // namespace braid::cli
