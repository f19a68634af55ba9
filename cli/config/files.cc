// Which files make a configuration, and whether what it names is there.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "bnbd/server.h"
#include "cli/config/config.h"
#include "cli/control_socket.h"
#include "cli/key_file.h"

namespace braid::cli {

namespace {

std::string error_text(int err) {
  return base::sys_error(err, "it cannot be read").message();
}

/// Its text; nothing if it is not there, or what is wrong has been told.
std::optional<std::string> read_text(const std::string& path, bool needed,
                                     std::vector<Problem>& problems) {
  const Place whole{path};
  // A FIFO must not hold us up.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat found {};
  if (file.get() < 0 || ::fstat(file.get(), &found) != 0) {
    const int err = errno;
    if (needed || (err != ENOENT && err != ENOTDIR)) wrong(problems, whole, error_text(err));
    return std::nullopt;
  }
  if (!S_ISREG(found.st_mode)) {
    wrong(problems, whole, "it is no regular file");
    return std::nullopt;
  }
  if ((found.st_mode & S_IWOTH) != 0)
    problems.push_back({whole,
                        fmt::format("anybody may change it (mode {:04o}); mode 0644 is right",
                                    found.st_mode & 07777),
                        /*warning=*/true});
  std::string text(kTomlBytesMax + 1, '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + length, text.size() - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      wrong(problems, whole, error_text(errno));
      return std::nullopt;
    }
    if (n == 0) break;
    length += static_cast<size_t>(n);
  }
  text.resize(length);
  return text;
}

/// The names of its "*.toml", sorted.
std::vector<std::string> drop_ins(const std::string& folder, std::vector<Problem>& problems) {
  std::vector<std::string> names;
  DIR* const open = ::opendir(folder.c_str());
  if (open == nullptr) {
    if (errno != ENOENT && errno != ENOTDIR) wrong(problems, Place{folder}, error_text(errno));
    return names;
  }
  while (const dirent* const entry = ::readdir(open)) {
    const std::string name = entry->d_name;
    if (!name.starts_with('.') && name.ends_with(".toml")) names.push_back(name);
  }
  ::closedir(open);
  std::sort(names.begin(), names.end());
  return names;
}

void judge_root(const Setting& root, std::vector<Problem>& problems) {
  const auto parsed = bnbd::parse_export_root(root.value.text);
  if (!parsed.ok()) {
    return wrong(problems, root.value.place,
                 fmt::format("[serve] root: {}", parsed.error().message()));
  }
  struct stat found {};
  const std::string& folder = parsed.value().folder;
  if (::stat(folder.c_str(), &found) != 0)
    wrong(problems, root.value.place,
          base::sys_error(errno, fmt::format("[serve] root = \"{}\"", folder)).message());
  else if (!S_ISDIR(found.st_mode))
    wrong(problems, root.value.place,
          fmt::format("[serve] root = \"{}\": it is no directory", folder));
}

template <typename T>
void judge_keys(const Setting* setting, const char* what,
                base::Result<T> (*read)(const std::string&), std::vector<Problem>& problems) {
  if (setting == nullptr || setting->wrong) return;
  if (const auto keys = read(setting->value.text); !keys.ok())
    wrong(problems, setting->value.place, fmt::format("{}: {}", what, keys.error().message()));
}

}  // namespace

Config load_config(const std::string& path, bool needed, std::vector<Problem>& problems) {
  Config config;
  if (const auto text = read_text(path, needed, problems))
    read_config(*text, path, config, problems);
  std::filesystem::path folder(path);
  folder.replace_extension(".d");
  if (folder == path) return config;
  for (const std::string& name : drop_ins(folder.string(), problems)) {
    const std::string file = (folder / name).string();
    if (const auto text = read_text(file, /*needed=*/true, problems))
      read_config(*text, file, config, problems);
  }
  return config;
}

void judge_files(const Config& config, std::vector<Problem>& problems) {
  if (const Setting* const root = config.group("serve").find("root")) judge_root(*root, problems);
  judge_keys(config.group("serve").find("keys"), "[serve] keys", &read_keys, problems);
  judge_keys(config.group("node").find("key"), "[node] key", &read_key, problems);
  for (const Entry* const map : config.all("map"))
    judge_keys(map->find("key"), "[[map]] key", &read_key, problems);
}

}  // namespace braid::cli
