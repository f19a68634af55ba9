// Files of configuration: what they say together, and what those are told who wrote them.
#include "cli/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/test_node.h"

namespace braid::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Read {
  Config config;
  std::vector<Problem> problems;
  std::vector<std::string> words() const {
    std::vector<std::string> all;
    for (const Problem& problem : problems) all.push_back(problem.text());
    return all;
  }
};

/// The texts as files a, b, ..., in this order.
Read read(const std::vector<std::string>& texts) {
  Read all;
  char name = 'a';
  for (const std::string& text : texts)
    read_config(text, std::string(1, name++), all.config, all.problems);
  judge_config(all.config, all.problems);
  return all;
}

std::vector<std::string> words_of(const std::string& text) {
  return read({text}).words();
}

std::string export_of(const std::string& name, const std::string& memory = "1M") {
  return "[[export]]\nname = \"" + name + "\"\nmemory = \"" + memory + "\"\n";
}

TEST(Config, NothingSaysNothing) {
  const Read all = read({""});
  EXPECT_THAT(all.words(), ElementsAre());
  EXPECT_EQ(config_summary(all.config), "nothing is exported nor mapped\n");
  auto options = node_options(all.config);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->name, "daemon");
  EXPECT_FALSE(options->serve.has_value());
}

TEST(Config, SaysAllThatTheCommandLineCan) {
  const Read all = read({R"(
[node]
name = "n"
wire = "tcp"
key = "/k"
map_reactors = 2
poll_budget = "2ms"
[serve]
root = "/srv"
listen = ["10.0.0.1", "[::1]:7"]
keys = "/keys"
read_only = true
block_devices = true
huge_pages = true
reactors = 3
queue_depth = 64
max_io = "128K"
chunk_guard = "copy"
[[export]]
name = "ram"
memory = "8M"
[[export]]
name = "void"
null = 4096
)"});
  EXPECT_THAT(all.words(), ElementsAre());
  auto options = node_options(all.config);
  ASSERT_TRUE(options.ok()) << options.error().message();
  EXPECT_EQ(options->name, "n");
  EXPECT_TRUE(options->tcp_within_host);
  EXPECT_EQ(options->key_file, "/k");
  EXPECT_EQ(options->map_reactors, 2U);
  EXPECT_EQ(options->poll_budget_ns, 2'000'000U);
  const ServeOptions& serve = options->serve.value();
  EXPECT_EQ(serve.root, "/srv");
  EXPECT_EQ(serve.listen.ip, "10.0.0.1");
  ASSERT_EQ(serve.listen_further.size(), 1U);
  EXPECT_EQ(serve.listen_further[0].port, 7);
  EXPECT_TRUE(serve.listen_tcp);
  EXPECT_EQ(serve.keys_file, "/keys");
  EXPECT_TRUE(serve.read_only);
  EXPECT_TRUE(serve.block_devices);
  EXPECT_TRUE(serve.huge_pages);
  EXPECT_EQ(serve.reactors, 3U);
  EXPECT_EQ(serve.queue_depth, 64U);
  EXPECT_EQ(serve.max_io_bytes, 128U << 10);
  EXPECT_EQ(serve.chunk_guard, trs::ChunkGuard::kCopy);
  ASSERT_EQ(serve.memory.size(), 1U);
  EXPECT_EQ(serve.memory[0].size_bytes, 8U << 20);
  ASSERT_EQ(serve.null.size(), 1U);
  EXPECT_EQ(serve.null[0].size_bytes, 4096U);
}

TEST(Config, MapsBecomeCallsWithAllTheirKeys) {
  const Read all = read({R"(
[[map]]
target = "10.0.0.1/vm/disk.img"
access = "ro"
reactors = 2
guard_reads = true
give_up_after = "5s"
filters = ["checksum", "delay:read=1ms"]
)"});
  EXPECT_THAT(all.words(), ElementsAre());
  auto options = node_options(all.config);
  ASSERT_TRUE(options.ok());
  ASSERT_EQ(options->maps.size(), 1U);
  EXPECT_EQ(options->maps[0].name, "disk.img");
  EXPECT_EQ(options->maps[0].source, "a:2:1");
  EXPECT_EQ(json::parse(options->maps[0].params),
            json({{"target", "10.0.0.1/vm/disk.img"},
                  {"name", "disk.img"},
                  {"access", "ro"},
                  {"reactors", 2},
                  {"guard_reads", true},
                  {"give_up_after", "5s"},
                  {"filters", {"checksum", "delay:read=1ms"}}}));
}

TEST(Config, FiltersAreJudgedAsTheCommandLines) {
  const Read all = read({"[[map]]\ntarget = \"10.0.0.1/a\"\nfilters = [\"delay:read=often\"]\n"});
  ASSERT_EQ(all.words().size(), 1U);
  EXPECT_THAT(all.words()[0], HasSubstr("often"));
}

TEST(Config, LaterFilesOverrideValuesAndAddEntries) {
  const Read all =
      read({"[serve]\nroot = \"/a\"\nqueue_depth = 8\n[[export]]\nname = \"x\"\n"
            "memory = \"1M\"\n",
            "[serve]\nqueue_depth = 16\n[[export]]\nname = \"y\"\nnull = \"1M\"\n"});
  EXPECT_THAT(all.words(), ElementsAre());
  const Setting* const depth = all.config.group("serve").find("queue_depth");
  ASSERT_NE(depth, nullptr);
  EXPECT_EQ(depth->value.integer, 16);
  EXPECT_EQ(depth->value.place.text(), "b:2:15");
  ASSERT_EQ(depth->instead.size(), 1U);
  EXPECT_EQ(depth->instead[0].text(), "a:3:15");
  EXPECT_EQ(all.config.all("export").size(), 2U);
  EXPECT_THAT(config_table(all.config), HasSubstr("16        b:2:15, instead of a:3:15"));
}

TEST(Config, TheSameNameTwiceNamesBothPlaces) {
  EXPECT_THAT(read({"[[export]]\nname = \"x\"\nmemory = \"1M\"\n",
                    "\n[[export]]\nname = \"x\"\nnull = \"1M\"\n"})
                  .words(),
              ElementsAre("b:3:8: [[export]] \"x\" is there twice, the first time at a:2:8"));
  EXPECT_THAT(
      words_of("[[map]]\ntarget = \"h/d\"\n[[map]]\ntarget = \"g/x/d\"\n"),
      ElementsAre("a:4:10: [[map]] \"d\" is there twice, the first time at a:2:10; give one "
                  "a name"));
}

TEST(Config, UnknownWordsAreErrorsThatNameTheNearest) {
  EXPECT_THAT(
      words_of("[serve]\nroot = \"/a\"\nqueue_dept = 5\n"),
      ElementsAre("a:3:1: [serve] has no key \"queue_dept\"; did you mean \"queue_depth\"?"));
  EXPECT_THAT(words_of("[sevre]\nroot = \"/a\"\n"),
              ElementsAre("a:1:2: there is no group \"sevre\"; did you mean \"serve\"?"));
  EXPECT_THAT(words_of("[zzzzzz]\n"),
              ElementsAre(HasSubstr("there is no group \"zzzzzz\"; there are: node, serve, ")));
  EXPECT_THAT(words_of("[node]\nzzzzzz = 1\n"),
              ElementsAre(HasSubstr("[node] has no key \"zzzzzz\"; it has: name, device, ")));
  EXPECT_THAT(words_of("queue_depth = 5\n"),
              ElementsAre("a:1:1: \"queue_depth\" stands in no group; it belongs into [serve]"));
}

TEST(Config, WrongValuesAreToldWithWhatWouldBeRight) {
  const std::string root = "[serve]\nroot = \"/a\"\n";
  EXPECT_THAT(words_of(root + "queue_depth = 1\n"),
              ElementsAre("a:3:15: [serve] queue_depth = 1: want a number from 2 to 4096"));
  EXPECT_THAT(words_of(root + "queue_depth = \"many\"\n"),
              ElementsAre("a:3:15: [serve] queue_depth = \"many\": want a number from 2 to 4096"));
  EXPECT_THAT(words_of(root + "queue_depth = 2.5\n"),
              ElementsAre(HasSubstr("queue_depth = 2.5: want a number from 2 to 4096")));
  EXPECT_THAT(
      words_of(root + "max_io = \"5X\"\n"),
      ElementsAre("a:3:10: [serve] max_io = \"5X\": want a size from 4.0 KiB to 16.0 MiB, a "
                  "multiple of 4 KiB, for example \"64K\""));
  EXPECT_THAT(words_of(root + "max_io = \"32M\"\n"), ElementsAre(HasSubstr("want a size from")));
  EXPECT_THAT(words_of(root + "max_io = true\n"),
              ElementsAre(HasSubstr("max_io = true: want a size")));
  EXPECT_THAT(words_of(root + "read_only = 1\n"),
              ElementsAre(HasSubstr("read_only = 1: want true or false")));
  EXPECT_THAT(words_of(root + "chunk_guard = \"no\"\n"),
              ElementsAre(HasSubstr("want \"open\", \"windows\" or \"copy\"")));
  EXPECT_THAT(words_of(root + "listen = [\"h:99999\"]\n"),
              ElementsAre(HasSubstr("want a number from 0 to 65535; want an address, ")));
  EXPECT_THAT(words_of(root + "listen = []\n"),
              ElementsAre(HasSubstr("listen = []: want an address")));
  EXPECT_THAT(words_of("[serve]\nroot = \"srv\"\n"),
              ElementsAre(HasSubstr("[serve] root = \"srv\": want an absolute path")));
  EXPECT_THAT(words_of("[node]\nname = \"\"\n"), ElementsAre(HasSubstr("want a text")));
  EXPECT_THAT(words_of("[node]\ndevice = \"a,,b\"\n"), ElementsAre(HasSubstr("[node] device: ")));
  EXPECT_THAT(words_of("[node]\npoll_budget = \"5\"\n"),
              ElementsAre(HasSubstr("want a time, for example \"50us\" or \"2ms\", or \"0\", or")));
  EXPECT_THAT(words_of("[[map]]\ntarget = \"nowhere\"\n"),
              ElementsAre(HasSubstr("the export is missing")));
  EXPECT_THAT(
      words_of("[[map]]\ntarget = \"h/d\"\ngive_up_after = \"5\"\n"),
      ElementsAre("a:3:17: [[map]] give_up_after = \"5\": want a time with its unit, ms, s, m "
                  "or h, for example \"30s\", or \"never\""));
  EXPECT_THAT(words_of("[[map]]\ntarget = \"h/d\"\ngive_up_after = 5\n"),
              ElementsAre(HasSubstr("give_up_after = 5: want a time with its unit")));
  EXPECT_THAT(words_of("[[map]]\ntarget = \"h/d\"\nname = \"a/b\"\n"),
              ElementsAre(HasSubstr("[[map]] name = \"a/b\": ")));
}

TEST(Config, ShapesThatAreWrongAreToldWithTheRightOne) {
  EXPECT_THAT(words_of("[export]\nname = \"x\"\n"),
              ElementsAre("a:1:2: want [[export]] and below it its keys, for each of them"));
  EXPECT_THAT(words_of("[[serve]]\nroot = \"/a\"\n"),
              ElementsAre(HasSubstr("want [serve] and below it its keys, once in a file")));
  EXPECT_THAT(words_of("map = [1]\n"), ElementsAre(HasSubstr("want [[map]] and below it")));
  EXPECT_THAT(words_of("serve = 5\n"), ElementsAre(HasSubstr("want [serve] and below it")));
}

TEST(Config, EntriesThatSayTooLittleOrTooMuchAreErrors) {
  EXPECT_THAT(words_of("[[export]]\nmemory = \"1M\"\n"),
              ElementsAre("a:1:1: [[export]] without a name: want name = \"...\""));
  EXPECT_THAT(words_of("[[export]]\nname = \"x\"\n"),
              ElementsAre(HasSubstr("[[export]] \"x\" has none of memory, null: want one")));
  EXPECT_THAT(words_of("[[export]]\nname = \"x\"\nmemory = \"1M\"\nnull = \"1M\"\n"),
              ElementsAre(HasSubstr("[[export]] \"x\" has several of memory, null: want one")));
  EXPECT_THAT(words_of("[[map]]\naccess = \"ro\"\n"),
              ElementsAre(HasSubstr("[[map]] without a target")));
  EXPECT_THAT(
      words_of("[serve]\nlisten = \"10.0.0.1\"\n"),
      ElementsAre(HasSubstr("a:2:10: [serve] listen says how to export, but nothing is to")));
  EXPECT_THAT(words_of("[serve]\nroot = \"/a\"\nhuge_pages = true\n"),
              ElementsAre(HasSubstr("a:3:14: [serve] huge_pages is how memory is exported, and")));
  EXPECT_THAT(words_of("[serve]\nroot = \"/a\"\nhuge_pages = false\n"), ElementsAre());
  EXPECT_THAT(
      words_of("[serve]\nroot = \"/a\"\nqueue_depth = 4096\nmax_io = \"16M\"\n"),
      ElementsAre(HasSubstr("a:3:15: [serve] queue_depth = 4096: with max_io 16.0 MiB at most")));
}

TEST(Config, NamesThatANodeCannotHaveAreTold) {
  EXPECT_THAT(words_of("[node]\nname = \"" + std::string(93, 'n') + "\"\n"), ElementsAre());
  EXPECT_THAT(words_of("[node]\nname = \"" + std::string(94, 'n') + "\"\n"),
              ElementsAre(AllOf(StartsWith("a:2:8: [node] name: node name \"nnn"),
                                HasSubstr("want 1 to 93 bytes"))));
  EXPECT_THAT(words_of(export_of(std::string(254, 'x'))), ElementsAre());
  EXPECT_THAT(words_of(export_of(std::string(255, 'x'))),
              ElementsAre(AllOf(StartsWith("a:2:8: [[export]] name: export name 'xxx"),
                                HasSubstr("of 255 bytes: must have 1 to 254"))));
  EXPECT_THAT(words_of("[[map]]\ntarget = \"h/" + std::string(255, 'x') + "\"\n"),
              ElementsAre(AllOf(StartsWith("a:2:10: [[map]] target = \"h/xxx"),
                                HasSubstr("the export's name has 255 bytes; 254 are the most"))));
}

TEST(Config, TwoSpellingsOfAnExportAreOneName) {
  EXPECT_THAT(read({export_of("a"), export_of("/a")}).words(),
              ElementsAre("b:2:8: [[export]] \"/a\", which is \"a\", is there twice, the first "
                          "time at a:2:8"));
  Read typed = read({export_of("vm/./a")});
  EXPECT_EQ(override_export(typed.config, *find_key("export", "memory"), {"/vm/a", 8192}),
            "a:1:1: --memory /vm/a on the command line takes the place of this [[export]]");
  auto options = node_options(typed.config);
  ASSERT_TRUE(options.ok()) << options.error().message();
  ASSERT_EQ(options->serve->memory.size(), 1U);
  EXPECT_EQ(options->serve->memory[0].name, "vm/a");
  EXPECT_EQ(options->serve->memory[0].size_bytes, 8192U);
}

TEST(Config, AnExportsNameMayHaveAnEqualsSign) {
  const Read all = read({export_of("a=b")});
  EXPECT_THAT(all.words(), ElementsAre());
  EXPECT_EQ(config_summary(all.config), "export a=b: memory, 1.0 MiB\n");
  auto options = node_options(all.config);
  ASSERT_TRUE(options.ok()) << options.error().message();
  ASSERT_EQ(options->serve->memory.size(), 1U);
  EXPECT_EQ(options->serve->memory[0].name, "a=b");
  EXPECT_EQ(options->serve->memory[0].size_bytes, 1U << 20);
}

TEST(Config, MemoryHasABound) {
  EXPECT_THAT(words_of(export_of("x", "64T")), ElementsAre());
  EXPECT_THAT(words_of(export_of("x", "65T")),
              ElementsAre("a:3:10: [[export]] memory = \"65T\": want a size from 4.0 KiB to 64.0 "
                          "TiB, a multiple of 4 KiB, for example \"64K\""));
}

TEST(Config, AddressesToListenOnAreNoNames) {
  EXPECT_THAT(
      words_of("[serve]\nroot = \"/a\"\nlisten = \"localhost\"\n"),
      ElementsAre("a:3:10: [serve] listen = \"localhost\": address \"localhost\": want an IP "
                  "address, IP[:PORT]; want an address, for example \"10.0.0.1:1234\", or a "
                  "list of them"));
}

TEST(Config, FiltersOfAMapGoWithItsAccess) {
  const std::string map = "[[map]]\ntarget = \"h/d\"\n";
  EXPECT_THAT(words_of(map + "access = \"migration\"\nfilters = \"checksum\"\n"),
              ElementsAre(AllOf(StartsWith("a:4:11: [[map]] filters: filter \"checksum\""),
                                HasSubstr("taken for damage"))));
  EXPECT_THAT(words_of(map + "access = \"migration\"\nfilters = \"delay:read=1ms\"\n"),
              ElementsAre());
  const auto filters = [](int count) {
    std::string list;
    for (int i = 0; i < count; ++i) list += "\"checksum\", ";
    return "filters = [" + list + "]\n";
  };
  EXPECT_THAT(words_of(map + filters(16)), ElementsAre());
  EXPECT_THAT(words_of(map + filters(17)),
              ElementsAre("a:3:11: [[map]] filters: 17 filters: 16 are the most"));
  EXPECT_THAT(words_of(map + "access = \"any\"\nfilters = [\"checksum\"]\n"),
              ElementsAre(HasSubstr("want \"ro\", \"rw\" or \"migration\"")))
      << "what is wrong is told once";
}

TEST(Config, AKeyItselfIsRefusedAndNeverRepeated) {
  const std::string secret = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
  const std::string key = "key = \"vm7:" + secret + "\"\n";
  const std::vector<std::string> texts{"[node]\n" + key, "[[map]]\ntarget = \"h/d\"\n" + key};
  for (const std::string& text : texts) {
    Read all = read({text});
    judge_files(all.config, all.problems);
    EXPECT_THAT(all.words(), ElementsAre(HasSubstr("this is a key itself")));
    EXPECT_THAT(all.words(), ElementsAre(Not(HasSubstr(secret.substr(0, 8)))));
  }
}

TEST(Config, AllThatIsWrongIsTold) {
  EXPECT_EQ(words_of("[node]\nx = 1\nmap_reactors = 0\n[serve]\nroot = 5\n[q]\n").size(), 4U);
}

TEST(Config, WhatIsNoTomlIsToldWithItsPlace) {
  // U+FEC5 to U+FEFF where a value should stand, and where they may.
  for (const char last : {'\x85', '\x86', '\xb7', '\xbe', '\xbf'}) {
    const std::string letter = std::string("\xef\xbb") + last;
    EXPECT_THAT(words_of("[node]\nname = " + letter + "\n"), ElementsAre(HasSubstr("a:2:")));
    EXPECT_THAT(words_of("# " + letter + "\n[node]\nname = \"" + letter + "\"\n"), ElementsAre());
  }
  EXPECT_THAT(words_of("[serve]\nroot = \n"), ElementsAre(testing::StartsWith("a:2:")));
  EXPECT_THAT(words_of("[serve]\nreactors = 1\nreactors = 2\n"),
              ElementsAre(testing::StartsWith("a:3:")));
  EXPECT_THAT(words_of("[[[x]]]\n"), ElementsAre(testing::StartsWith("a:1:")));
  EXPECT_THAT(words_of("[=\n"), ElementsAre(testing::StartsWith("a:1:2: ")));
  std::string deep = "a";
  for (int i = 0; i < 200; ++i) deep += ".a";
  EXPECT_THAT(words_of(deep + " = 1\n"), ElementsAre(HasSubstr("a key with more than 100 dots")));
  EXPECT_THAT(words_of(std::string(kTomlBytesMax + 1, '#')), ElementsAre(HasSubstr("at most")));
  EXPECT_THAT(words_of("# " + std::string(300, '.') + "\n"), ElementsAre());
}

TEST(Config, TheCommandLineOverridesAndSaysSo) {
  Read all =
      read({"[serve]\nroot = \"/a\"\nqueue_depth = 8\n[[export]]\nname = \"x\"\n"
            "memory = \"1M\"\n"});
  const ConfigKey& depth = *find_key("serve", "queue_depth");
  EXPECT_EQ(override_with(all.config, depth, typed_value(depth, {"16"})),
            "a:3:15: --queue-depth 16 on the command line overrides [serve] queue_depth = 8");
  const ConfigKey& listen = *find_key("serve", "listen");
  EXPECT_EQ(override_with(all.config, listen, typed_value(listen, {":7", ":8"})), "");
  EXPECT_EQ(override_export(all.config, *find_key("export", "null"), {"x", 8192}),
            "a:4:1: --null x on the command line takes the place of this [[export]]");
  EXPECT_EQ(override_export(all.config, *find_key("export", "null"), {"y", 8192}), "");
  auto options = node_options(all.config);
  ASSERT_TRUE(options.ok()) << options.error().message();
  EXPECT_EQ(options->serve->queue_depth, 16U);
  EXPECT_EQ(options->serve->listen_further.size(), 1U);
  EXPECT_EQ(options->serve->memory.size(), 0U);
  EXPECT_EQ(options->serve->null.size(), 2U);
}

class ConfigFiles : public testing::Test {
 protected:
  Read load(bool needed = true) {
    Read all;
    all.config = load_config(folder_ / "braid.toml", needed, all.problems);
    judge_config(all.config, all.problems);
    judge_files(all.config, all.problems);
    return all;
  }
  base::ScratchFolder folder_;
};

TEST_F(ConfigFiles, DropInsAreReadInTheOrderOfTheirNames) {
  write_file(folder_, "braid.toml", "[node]\nname = \"first\"\n", 0644);
  ASSERT_EQ(::mkdir((folder_ / "braid.d").c_str(), 0755), 0);
  write_file(folder_, "braid.d/20-b.toml", "[node]\nname = \"b\"\n", 0644);
  write_file(folder_, "braid.d/10-a.toml", "[node]\nname = \"a\"\n", 0644);
  write_file(folder_, "braid.d/30-c.conf", "no toml", 0644);
  write_file(folder_, "braid.d/.40.toml", "no toml", 0644);
  const Read all = load();
  EXPECT_THAT(all.words(), ElementsAre());
  EXPECT_EQ(all.config.group("node").text("name"), "b");
  EXPECT_THAT(all.config.files, ElementsAre(folder_ / "braid.toml", folder_ / "braid.d/10-a.toml",
                                            folder_ / "braid.d/20-b.toml"));
}

TEST_F(ConfigFiles, OneThatIsNotThereIsAnErrorOnlyIfItWasNamed) {
  EXPECT_THAT(load(/*needed=*/false).words(), ElementsAre());
  EXPECT_THAT(load().words(), ElementsAre(HasSubstr("it cannot be read: No such file")));
  ASSERT_EQ(::mkdir((folder_ / "braid.toml").c_str(), 0755), 0);
  EXPECT_THAT(load(/*needed=*/false).words(), ElementsAre(HasSubstr("it is no regular file")));
}

TEST_F(ConfigFiles, OneThatAnybodyMayChangeIsOdd) {
  write_file(folder_, "braid.toml", "", 0666);
  const Read all = load();
  EXPECT_THAT(all.words(), ElementsAre(HasSubstr("warning: anybody may change it (mode 0666)")));
  EXPECT_FALSE(any_error(all.problems));
}

TEST_F(ConfigFiles, WhatItNamesHasToBeThereAndRight) {
  const std::string keys = write_file(folder_, "keys", "", 0644);
  write_file(folder_, "braid.toml",
             "[serve]\nroot = \"/nonexistent\"\nkeys = \"" + keys + "\"\n[node]\nkey = \"/none\"\n",
             0644);
  EXPECT_THAT(
      load().words(),
      ElementsAre(HasSubstr("braid.toml:2:8: [serve] root = \"/nonexistent\""),
                  HasSubstr("mode 0600 is right"), HasSubstr("[node] key: key file \"/none\"")));
}

TEST(ConfigNearest, FindsTheWordThatWasMeant) {
  const std::vector<std::string_view> words{"root", "listen", "queue_depth"};
  EXPECT_EQ(nearest("lsiten", words), "listen");
  EXPECT_EQ(nearest("roots", words), "root");
  EXPECT_EQ(nearest("depth", words), "");
  EXPECT_EQ(nearest("", words), "");
  EXPECT_EQ(nearest(std::string(10000, 'x'), words), "");
}

TEST(ConfigReference, TheDocumentHasEachKeyAsTheReaderHasIt) {
  std::ifstream file("docs/configuration.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(keys_reference())) << "braid config reference prints it";
}

TEST(ConfigReference, ProgramsHaveEachKeyAsPeopleHaveIt) {
  const json all = json::parse(keys_json());
  size_t found = 0;
  for (const json& group : all.at("groups")) {
    const auto name = group.at("name").get<std::string>();
    ASSERT_NE(find_group(name), nullptr) << name;
    EXPECT_EQ(group.at("list").get<bool>(), find_group(name)->list) << name;
    for (const json& told : group.at("keys")) {
      const ConfigKey* const key = find_key(name, told.at("name").get<std::string>());
      ASSERT_NE(key, nullptr) << told;
      EXPECT_EQ(told.at("wants").get<std::string>(), wanted_by(*key));
      EXPECT_EQ(told.at("what").get<std::string>(), key->what);
      EXPECT_EQ(told.at("default").is_null(), *key->fallback == 0) << told;
      EXPECT_EQ(told.at("option").is_null(), *key->option == 0) << told;
      ++found;
    }
  }
  EXPECT_EQ(found, config_keys().size());
}

TEST(ConfigReference, KeysAreUniqueAndTheirGroupsExist) {
  for (const ConfigKey& key : config_keys()) {
    EXPECT_NE(find_group(key.group), nullptr) << key.group;
    EXPECT_EQ(find_key(key.group, key.name), &key) << key_text(key);
    EXPECT_NE(wanted_by(key), "") << key_text(key);
  }
}

}  // namespace
}  // namespace braid::cli
