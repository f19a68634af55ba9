#include "capi/disk_name.h"

namespace braid::capi {

using base::Errc;
using base::make_error;
using base::Result;

namespace {

/// What follows a word and a colon at the start of a text.
bool take_prefix(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word) || text.size() <= word.size() || text[word.size()] != ':')
    return false;
  text.remove_prefix(word.size() + 1);
  return true;
}

Result<uint64_t> size_of(std::string_view size, std::string_view whole) {
  auto bytes = reach::parse_size(size);
  if (!bytes.ok()) return bytes.error().with("device \"{}\"", whole);
  return *std::move(bytes);
}

Result<DiskName> file_disk(std::string_view path, std::string_view whole) {
  if (!path.starts_with('/') || path.ends_with('/'))
    return make_error(Errc::kInvalid, "device \"{}\": want file: and an absolute path, file:/PATH",
                      whole);
  if (path.find('\0') != std::string_view::npos)
    return make_error(Errc::kInvalid, "device \"{}\": a path has no zero byte", whole);
  const size_t slash = path.rfind('/');
  FileDisk disk;
  disk.folder = slash == 0 ? "/" : std::string(path.substr(0, slash));
  disk.name = std::string(path.substr(slash + 1));
  return DiskName(std::move(disk));
}

}  // namespace

Result<DiskName> parse_disk_name(std::string_view text) {
  std::string_view rest = text;
  if (take_prefix(rest, "memory")) {
    BRAID_TRY(const uint64_t size_bytes, size_of(rest, text));
    return DiskName(MemoryDisk{size_bytes});
  }
  if (take_prefix(rest, "null")) {
    BRAID_TRY(const uint64_t size_bytes, size_of(rest, text));
    return DiskName(NullDisk{size_bytes});
  }
  if (take_prefix(rest, "file")) return file_disk(rest, text);
  auto target = reach::parse_target(text);
  if (target.ok()) return DiskName(*std::move(target));
  return make_error(Errc::kInvalid, "{}; or memory:SIZE, file:/PATH, null:SIZE",
                    target.error().message());
}

}  // namespace braid::capi
