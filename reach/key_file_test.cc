// Key files: who may read them is checked, and what is wrong is said without the secret.
#include "reach/key_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/linux_test_folder.h"

namespace braid::reach {
namespace {

using base::Errc;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLine = "vm7:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";

class KeyFile : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text, mode_t mode = 0600) {
    std::ofstream(folder / name) << text;
    EXPECT_EQ(::chmod((folder / name).c_str(), mode), 0);
    return folder / name;
  }
  const base::ScratchFolder folder;
};

TEST_F(KeyFile, HasALinePerClient) {
  auto keys = read_keys(file("keys", std::string("# a\n") + kLine + "b" + kLine));
  ASSERT_TRUE(keys.ok()) << keys.error().message();
  EXPECT_THAT((*keys)->names(), ElementsAre("bvm7", "vm7"));
  EXPECT_TRUE(read_keys(file("ro", kLine, 0400)).ok());
}

TEST_F(KeyFile, ThatOthersMayReadOrChangeIsRefused) {
  for (const mode_t mode : {0604, 0640, 0620, 0602, 0644, 0601}) {
    auto keys = read_keys(file("keys", kLine, mode));
    ASSERT_FALSE(keys.ok());
    EXPECT_EQ(keys.code(), Errc::kPermission);
    EXPECT_THAT(keys.error().message(), HasSubstr("mode 0600 is right"));
    EXPECT_THAT(keys.error().message(), HasSubstr(folder.path()));
  }
  const std::string others = file("others", kLine);
  if (geteuid() == 0) {
    ASSERT_EQ(::chown(others.c_str(), 4711, 0), 0);
    EXPECT_THAT(read_keys(others).error().message(), HasSubstr("belongs to user 4711"));
  }
}

TEST_F(KeyFile, ThatIsNoneIsNamed) {
  EXPECT_EQ(read_keys(folder / "nothing").code(), Errc::kNotFound);
  EXPECT_THAT(read_keys(folder.path()).error().message(), HasSubstr("no regular file"));
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(read_keys(fifo).error().message(), HasSubstr("no regular file"));
  const auto broken = read_keys(file("keys", "\nvm7:AAECAwQFBgcICQ"));
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message(), HasSubstr("/keys\": line 2: "));
  EXPECT_THAT(broken.error().message(), Not(HasSubstr("AAEC")));
  EXPECT_FALSE(read_keys(file("large", std::string((1 << 20) + 1, '#'))).ok());
}

TEST_F(KeyFile, OfAClientHasOneKey) {
  auto key = read_key(file("key", kLine));
  ASSERT_TRUE(key.ok());
  EXPECT_EQ((*key)->name(), "vm7");
  EXPECT_THAT(read_key(file("two", std::string(kLine) + "b" + kLine)).error().message(),
              HasSubstr("has 2 keys: a client has one"));
  EXPECT_THAT(read_key(file("none", "# nothing\n")).error().message(), HasSubstr("has 0 keys"));
}

TEST_F(KeyFile, IsWrittenForItsOwnerOnlyAndOnce) {
  auto key = trs::Key::parse(std::string_view(kLine).substr(0, std::strlen(kLine) - 1));
  ASSERT_TRUE(key.ok()) << key.error().message();
  const std::string path = folder / "new";
  ASSERT_TRUE(write_key(path, **key).ok());
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  auto again = read_key(path);
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_TRUE((*again)->same_secret(**key));
  EXPECT_EQ(write_key(path, **key).code(), Errc::kExists);
  EXPECT_EQ(write_key(folder / "no/where", **key).code(), Errc::kNotFound);
}

}  // namespace
}  // namespace braid::reach
