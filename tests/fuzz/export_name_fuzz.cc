// What the operator types for the exported directory, what clients call themselves and what they
// ask to open: text that ends in zero bytes, in this order. A name has one spelling, and who has a
// directory of his own reaches the files in it and no others, on a real file system.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/linux_host.h"
#include "bnbd/server/export_name.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/two_party.h"

namespace {

namespace base = braid::base;
namespace fs = std::filesystem;
using braid::bnbd::ExportRoot;
using braid::bnbd::normal_export_name;
using braid::bnbd::parse_export_root;
using braid::bnbd::server::file_name;
using braid::fuzz::require;

braid::fuzz::Verdicts roots("an export root"), sessions("a session's name"),
    opens("a file of a session");
braid::fuzz::Reached per_session("each session has its directory"),
    other_spelling("a name of more than one spelling");

/// "NAME" from "NAME\0REST", as a field of a message ends.
std::string take_text(std::string_view& input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string text(input.substr(0, end));
  input.remove_prefix(std::min(end + 1, input.size()));
  return text;
}

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '/') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Files of two sessions, and others beside them; their names are their places.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("braid-names-" + std::to_string(::getpid()))) {
    for (const char* const name : {"root/vm7/a", "root/vm7/d/b", "root/vm8/a", "root/a", "a"}) {
      fs::create_directories((path_ / name).parent_path());
      std::ofstream(path_ / name) << name;
      fs::resize_file(path_ / name, 4096);
    }
    auto made = base::create_linux_host();
    if (made.ok()) host_ = std::move(*made);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  /// The identity of what the name opens; empty: it is refused.
  std::string open(const std::string& name) {
    base::OpenOptions options;
    options.direct = false;
    auto file = host_->open_beneath(path_ / "root", name, options);
    return file.ok() ? (*file)->info().identity : "";
  }
  bool works() const { return host_ != nullptr; }

 private:
  const fs::path path_;
  std::unique_ptr<base::Host> host_;
};

void check_root(const std::string& text) {
  constexpr std::string_view kSession = "%SESSNAME%";
  auto root = parse_export_root(text);
  const bool named = text.find(kSession) != std::string::npos;
  if (!roots.count(root.ok())) return require(named, "only %SESSNAME% can be in the wrong place");
  require(root->per_session == named, "each session has its directory if the root says so");
  per_session.count(named);
  if (!named) return require(root->folder == text, "else it is taken as it is");
  require(!root->folder.empty() && root->folder.find(kSession) == std::string::npos,
          "there is a directory of directories");
  auto again = parse_export_root(root->folder + "/%SESSNAME%");
  require(again.ok() && again->per_session, "which can be said again");
}

void check_normal(const std::string& name) {
  const std::string normal = normal_export_name(name);
  require(normal_export_name(normal) == normal, "the one spelling is its own");
  std::vector<std::string> parts;
  for (std::string& part : parts_of(name)) {
    if (!part.empty() && part != ".") parts.push_back(std::move(part));
  }
  if (parts.empty()) return require(normal == name, "what is no name stays what it is");
  require(parts_of(normal) == parts, "it has the same parts");
  other_spelling.count(normal != name);
  for (const std::string& other : {"/" + name, "./" + name, name + "/", name + "/."}) {
    require(normal_export_name(other) == normal, "all spellings are one");
  }
}

/// The files of the session, and no others.
void check_files(Folder& folder, const std::string& session, const std::string& name) {
  const ExportRoot each{"/srv", true};
  auto file = file_name(each, session, name);
  const bool directory = !session.empty() && session != "." && session != ".." &&
                         session.find('/') == std::string::npos;
  require(file.ok() == directory, "a session's name is that of a directory, or nothing is opened");
  if (!sessions.count(file.ok())) return;
  require(file->starts_with(session + "/"), "it begins in the session's directory");
  if (!folder.works()) return;
  const std::string opened = folder.open(*file);
  if (!opens.count(!opened.empty())) return;
  static const std::array kOwn = {std::pair{"vm7", folder.open("vm7/a")},
                                  std::pair{"vm7", folder.open("vm7/d/b")},
                                  std::pair{"vm8", folder.open("vm8/a")}};
  bool own = false;
  for (const auto& [whose, identity] : kOwn) own |= session == whose && opened == identity;
  require(own, "it is a file of that session");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  static Folder folder;
  std::string_view input(reinterpret_cast<const char*>(data), size_bytes);
  check_root(take_text(input));
  const std::string session = take_text(input);
  const std::string name = take_text(input);
  check_normal(name);
  check_files(folder, session, name);
  const ExportRoot shared{"/srv", false};
  auto plain = file_name(shared, session, name);
  require(plain.ok() && *plain == normal_export_name(name),
          "without directories all share the root");
  if (!input.empty()) {
    const ExportRoot each{"/srv", true};
    const std::string other = take_text(input);
    auto one = file_name(each, session, name);
    auto two = file_name(each, other, name);
    require(session == other || !one.ok() || !two.ok() || *one != *two, "no two share a file");
  }
  return 0;
}
