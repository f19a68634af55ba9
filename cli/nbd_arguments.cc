#include "cli/nbd_arguments.h"

#include <filesystem>

#include "bnbd/kernel_device.h"
#include "cli/target.h"

namespace braid::cli {

using base::Errc;
using base::make_error;
using base::Result;

namespace {

/// "memory:1G" is local, "memory:1234/disk" a host that is called so.
bool is_sized(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) && text.find('/') == std::string_view::npos;
}

Result<LocalNbdExport> sized(std::string_view text, std::string_view prefix,
                             LocalNbdExport::Kind kind) {
  LocalNbdExport local;
  local.kind = kind;
  auto size = parse_size(text.substr(prefix.size()));
  if (!size.ok()) return size.error().with("target \"{}\"", text);
  if (*size % 4096 != 0)
    return make_error(Errc::kInvalid, "target \"{}\": the size must be a multiple of 4096 bytes",
                      text);
  local.size_bytes = *size;
  return local;
}

}  // namespace

Result<NbdTarget> parse_nbd_target(std::string_view text) {
  NbdTarget target;
  std::string_view what = text;
  if (const size_t equals = text.find('='); equals != std::string_view::npos) {
    // Behind the first ':' or '/' it belongs to a path or to an export's name.
    if (text.find_first_of(":/") > equals) {
      target.name = text.substr(0, equals);
      what = text.substr(equals + 1);
      const base::Status allowed = bnbd::check_device_name(target.name);
      if (!allowed.ok()) return allowed.error().with("target \"{}\"", text);
    }
  }
  std::string from;
  if (what.starts_with("file:")) {
    LocalNbdExport local;
    local.kind = LocalNbdExport::Kind::kFile;
    const std::string path(what.substr(5));
    if (path.empty() || path.ends_with('/'))
      return make_error(Errc::kInvalid, "target \"{}\": want file:PATH", text);
    // The node leaves the working directory.
    local.path = std::filesystem::absolute(path).lexically_normal();
    from = local.path;
    target.local = std::move(local);
  } else if (is_sized(what, "memory:")) {
    BRAID_TRY(target.local, sized(what, "memory:", LocalNbdExport::Kind::kMemory));
    from = "memory";
  } else if (is_sized(what, "null:")) {
    BRAID_TRY(target.local, sized(what, "null:", LocalNbdExport::Kind::kNull));
    from = "null";
  } else {
    auto remote = parse_target(what);
    if (!remote.ok())
      return remote.error().with("target \"{}\" (or file:PATH, memory:SIZE, null:SIZE)", text);
    target.remote = what;
    from = remote->export_name;
  }
  if (target.name.empty()) target.name = default_device_name(from);
  if (target.local) target.local->name = target.name;
  return target;
}

}  // namespace braid::cli
