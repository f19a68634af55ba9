#include "bench/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "bench/machine.h"

namespace braid::bench {
namespace {

constexpr int kLongMs = 60'000;

class ProcessTest : public testing::Test {
 protected:
  Command shell(const std::string& script) {
    return {.arguments = {"sh", "-c", script},
            .cpus = {choose_cpus().client},
            .output_file = scratch_.path("out")};
  }
  Interrupts interrupts_;
  ScratchFolder scratch_;
};

TEST_F(ProcessTest, KeepsTheOutputOfAProgram) {
  Command command = shell("echo said $WORD");
  command.environment = {"WORD=something"};
  auto process = Process::run(interrupts_, command);
  ASSERT_TRUE(process.ok());
  ASSERT_TRUE(process.value().wait(kLongMs).ok());
  EXPECT_EQ(last_lines(command.output_file), "said something");
}

TEST_F(ProcessTest, TellsWhatCpuTimeAProgramUsed) {
  auto process =
      Process::run(interrupts_, shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"));
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(process.value().cpu_ns(), 0u);
  ASSERT_TRUE(process.value().wait(kLongMs).ok());
  EXPECT_GT(process.value().cpu_ns(), 0u);
}

TEST_F(ProcessTest, TellsHowAProgramFailed) {
  auto process = Process::run(interrupts_, shell("exit 3"));
  const auto status = process.value().wait(kLongMs);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("exit status 3"), std::string::npos);
}

TEST_F(ProcessTest, NamesAProgramThatIsNotInstalled) {
  Command command = shell("");
  command.arguments = {"no-such-program-of-braid"};
  auto process = Process::run(interrupts_, command);
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.code(), base::Errc::kNotFound);
  EXPECT_NE(process.error().message().find("no-such-program-of-braid"), std::string::npos);
}

TEST_F(ProcessTest, EndsTheChildWithTheObject) {
  pid_t pid = -1;
  {
    auto process = Process::run(interrupts_, shell("exec cat /dev/zero > /dev/null"));
    ASSERT_TRUE(process.ok());
    pid = process.value().pid();
    EXPECT_TRUE(process.value().running());
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(ProcessTest, BringsBackWhatAFunctionSends) {
  auto process = Process::call(interrupts_, choose_cpus().server, [](Channel& channel) {
    channel.send({{"ready", true}});
    channel.send({{"value", 42}});
  });
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(process.value().receive(kLongMs).value()["ready"], true);
  EXPECT_EQ(process.value().receive(kLongMs).value()["value"], 42);
  EXPECT_EQ(process.value().receive(kLongMs).code(), base::Errc::kIo);
}

TEST_F(ProcessTest, TurnsAnExceptionIntoAnError) {
  auto process = Process::call(interrupts_, choose_cpus().client,
                               [](Channel&) { throw std::runtime_error("no such luck"); });
  const auto got = process.value().receive(kLongMs);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message(), "no such luck");
}

TEST_F(ProcessTest, TellsWhenAFunctionCrashes) {
  auto process =
      Process::call(interrupts_, choose_cpus().client, [](Channel&) { kill(getpid(), SIGKILL); });
  const auto got = process.value().receive(kLongMs);
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message().find("signal 9"), std::string::npos) << got.error().message();
}

TEST_F(ProcessTest, GivesUpWhenTheTimeIsUp) {
  auto process = Process::call(interrupts_, choose_cpus().client, [](Channel&) { pause(); });
  EXPECT_EQ(process.value().receive(10).code(), base::Errc::kTimedOut);
}

TEST_F(ProcessTest, ASignalCancelsWaiting) {
  auto process = Process::call(interrupts_, choose_cpus().client, [](Channel&) { pause(); });
  raise(SIGTERM);
  EXPECT_EQ(process.value().receive(kLongMs).code(), base::Errc::kCanceled);
  EXPECT_FALSE(interrupts_.check().ok());
  // Taken out of the way again, or it would end this process with the Interrupts.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  const timespec now{};
  EXPECT_EQ(sigtimedwait(&set, nullptr, &now), SIGTERM);
}

TEST(ScratchFolder, IsGoneAfterwards) {
  std::string file;
  {
    ScratchFolder scratch;
    file = scratch.path("x");
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(file).parent_path()));
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(file).parent_path()));
}

}  // namespace
}  // namespace braid::bench
