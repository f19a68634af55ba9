// What /proc/PID/mountinfo and /proc/swaps say of mounts and swaps, line by line: any bytes, and
// the names that they are about, written as the kernel writes them. A name that was written is
// read.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/mount_line.h"
#include "bnbd/frontend/device_users.h"
#include "tests/fuzz/reached.h"
#include "tests/fuzz/two_party.h"

namespace {

using braid::base::MountLine;
using braid::base::parse_mount_line;
using braid::base::swap_in_line;
using braid::bnbd::mount_point_in_line;
using braid::fuzz::require;

braid::fuzz::Verdicts mounts("a line of mountinfo"), swaps("a line of swaps");
braid::fuzz::Reached escaped("a name with escapes"), by_source("a mount found by its source");

/// As seq_escape() of the kernel does.
std::string escape(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (std::string_view(" \t\n\\#").find(c) == std::string_view::npos) {
      out += c;
      continue;
    }
    out += '\\';
    for (const int shift : {6, 3, 0}) out += static_cast<char>('0' + ((c >> shift) & 7));
  }
  return out;
}

/// The fields come again when they are written as the kernel does.
void check_again(const MountLine& mount) {
  const std::string source = escape(mount.source);
  escaped.count(source != mount.source);
  const std::string line = std::to_string(mount.id) + " 1 " + mount.device + " / " +
                           escape(mount.point) + " rw shared:1 - ext4 " + source + " rw";
  const auto again = parse_mount_line(line);
  require(again.has_value(), "what was read can be written");
  require(again->id == mount.id && again->device == mount.device, "with its numbers");
  require(again->point == mount.point && again->source == mount.source, "and its names");
}

void check_mount(const std::string& line) {
  const auto mount = parse_mount_line(line);
  // No device and no source has a newline in it, as that ends a line.
  const std::string other = "\n";
  if (!mounts.count(mount.has_value())) {
    return require(mount_point_in_line(line, "7:3", "/dev/loop3").empty(), "no line, no mount");
  }
  require(mount->device.find(' ') == std::string::npos && !mount->point.empty(), "it is one");
  check_again(*mount);
  require(mount_point_in_line(line, mount->device, other) == mount->point, "by its number");
  if (mount->source == other) return;
  by_source.count(!mount->source.empty());
  require(mount_point_in_line(line, other, mount->source) == mount->point, "by its source");
  require(mount_point_in_line(line, other, other).empty(), "and not by another one's");
}

void check_swap(const std::string& line) {
  const std::string name = swap_in_line(line);
  if (!swaps.count(!name.empty())) return require(!line.starts_with('/'), "a path is a swap");
  require(swap_in_line(escape(name) + "\tpartition\t4\t\t0\t\t-2") == name, "it comes again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    check_mount(line);
    check_swap(line);
    // Any name, in the place of each.
    check_again({.id = line.size(), .device = "7:3", .point = "/" + line, .source = line});
  }
  return 0;
}
