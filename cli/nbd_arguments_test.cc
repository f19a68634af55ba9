#include "cli/nbd_arguments.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace braid::cli {
namespace {

using base::Errc;
using Kind = LocalNbdExport::Kind;

NbdTarget parse(const std::string& text) {
  auto target = parse_nbd_target(text);
  EXPECT_TRUE(target.ok()) << target.error().message();
  return target.ok() ? *target : NbdTarget();
}

TEST(NbdArguments, ARemoteTargetIsCalledByTheLastWordOfItsExport) {
  const NbdTarget target = parse("10.0.0.1:1234/vm/a b.img");
  EXPECT_EQ(target.name, "a_b.img");
  EXPECT_EQ(target.remote, "10.0.0.1:1234/vm/a b.img");
  EXPECT_FALSE(target.local);
}

TEST(NbdArguments, AnEqualsSignNamesItOnlyBeforeTheTarget) {
  EXPECT_EQ(parse("x=10.0.0.1/disk").name, "x");
  EXPECT_EQ(parse("10.0.0.1/a=b").remote, "10.0.0.1/a=b");
  EXPECT_EQ(parse("file:/a=b").local->path, "/a=b");
  EXPECT_EQ(parse("x=file:/a=b").local->path, "/a=b");
}

TEST(NbdArguments, LocalOnes) {
  const NbdTarget memory = parse("ram=memory:1G");
  EXPECT_EQ(memory.local->kind, Kind::kMemory);
  EXPECT_EQ(memory.local->size_bytes, uint64_t{1} << 30);
  EXPECT_EQ(memory.local->name, "ram");
  EXPECT_EQ(parse("null:4k").local->kind, Kind::kNull);
  EXPECT_EQ(parse("null:4k").name, "null");
  const NbdTarget file = parse("file:disks/./b.img");
  EXPECT_EQ(file.local->path, std::filesystem::current_path() / "disks/b.img");
  EXPECT_EQ(file.name, "b.img");
}

TEST(NbdArguments, AHostMayBeCalledLikeAKind) {
  EXPECT_EQ(parse("memory:1234/disk").remote, "memory:1234/disk");
}

TEST(NbdArguments, WhatIsWrongIsNamed) {
  for (const char* text : {"", "nonsense", "memory:", "memory:x", "memory:1000",
                           "file:", "file:/a/", "=memory:1M", "a b=memory:1M"}) {
    const auto target = parse_nbd_target(text);
    EXPECT_EQ(target.code(), Errc::kInvalid) << text;
  }
}

}  // namespace
}  // namespace braid::cli
