// What is typed to export something is understood, or refused with the option that it stands
// behind.
#include "cli/serve_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace braid::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusal_of(const ServeArguments& arguments) {
  const auto options = arguments.options();
  return options.ok() ? "" : options.error().message();
}

ServeArguments of_memory(const std::string& text) {
  ServeArguments arguments;
  arguments.memory = {text};
  return arguments;
}

TEST(ServeArguments, ExportsHaveANameAndASize) {
  ServeArguments arguments = of_memory("ram=64T");
  arguments.null = {"void=4096"};
  auto options = arguments.options();
  ASSERT_TRUE(options.ok()) << options.error().message();
  ASSERT_EQ(options->memory.size(), 1U);
  EXPECT_EQ(options->memory[0].name, "ram");
  EXPECT_EQ(options->memory[0].size_bytes, uint64_t{1} << 46);
  ASSERT_EQ(options->null.size(), 1U);
  EXPECT_EQ(options->null[0].name, "void");
}

TEST(ServeArguments, ExportsThatCannotBeAreRefused) {
  EXPECT_EQ(refusal_of(of_memory("ram=65T")),
            "--memory \"ram=65T\": 65.0 TiB of memory; 64.0 TiB are the most");
  EXPECT_THAT(refusal_of(of_memory(std::string(255, 'x') + "=1M")),
              HasSubstr("of 255 bytes: must have 1 to 254"));
  for (const char* text : {"ram", "=1M", "ram=", "ram=much", "ram=4097"})
    EXPECT_THAT(refusal_of(of_memory(text)),
                StartsWith("--memory \"" + std::string(text) + "\": "));
  ServeArguments null;
  null.null = {"void=65T"};
  EXPECT_EQ(refusal_of(null), "") << "which takes no memory";
}

TEST(ServeArguments, AHostsNameIsNothingToListenOn) {
  ServeArguments arguments = of_memory("ram=1M");
  arguments.listen = {"127.0.0.1", "localhost:7"};
  EXPECT_EQ(refusal_of(arguments), "address \"localhost:7\": want an IP address, IP[:PORT]");
  arguments.listen = {"127.0.0.1", "[::1]:7", ":8"};
  EXPECT_EQ(refusal_of(arguments), "");
}

}  // namespace
}  // namespace braid::cli
