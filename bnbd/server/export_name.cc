#include "bnbd/server/export_name.h"

#include <algorithm>

#include "bnbd/wire.h"

namespace braid::bnbd {

using base::Errc;
using base::make_error;
using base::Result;

Result<ExportRoot> parse_export_root(std::string_view text) {
  constexpr std::string_view kSession = "%SESSNAME%";
  ExportRoot root{std::string(text), false};
  const size_t at = text.find(kSession);
  if (at == std::string_view::npos) return root;
  std::string_view behind = text.substr(at + kSession.size());
  while (behind.starts_with('/')) behind.remove_prefix(1);
  if (at == 0 || text[at - 1] != '/' || !behind.empty()) {
    return make_error(Errc::kInvalid,
                      "export root \"{}\": {} stands for a directory of each client session, and "
                      "must be the last part of the path, as in /srv/disks/{}",
                      text, kSession, kSession);
  }
  // "/%SESSNAME%" has the root directory before it.
  root.folder = std::string(text.substr(0, std::max<size_t>(at - 1, 1)));
  root.per_session = true;
  return root;
}

std::string normal_export_name(std::string_view name) {
  std::string normal;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if (!part.empty() && part != ".") {
      if (!normal.empty()) normal += '/';
      normal += part;
    }
    at = end + 1;
  }
  return normal.empty() ? std::string(name) : normal;
}

base::Status check_export_name(std::string_view name) {
  const size_t length_bytes = normal_export_name(name).size();
  if (length_bytes >= 1 && length_bytes < wire::kNameBytes) return {};
  return make_error(Errc::kInvalid, "export name '{}' of {} bytes: must have 1 to {}", name,
                    length_bytes, wire::kNameBytes - 1);
}

namespace server {

Result<std::string> file_name(const ExportRoot& root, std::string_view owner,
                              std::string_view name) {
  if (!root.per_session) return normal_export_name(name);
  const bool folder =
      !owner.empty() && owner != "." && owner != ".." && owner.find('/') == std::string_view::npos;
  if (!folder) {
    return make_error(
        Errc::kInvalid,
        "session \"{}\": each session has a directory of its name (or its key's) here, so "
        "it must be that of a directory",
        owner);
  }
  return fmt::format("{}/{}", owner, normal_export_name(name));
}

}  // namespace server
}  // namespace braid::bnbd
