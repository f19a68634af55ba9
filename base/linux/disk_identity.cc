#include "base/linux/disk_identity.h"

#include <fmt/core.h>
#include <unistd.h>

#include "base/linux/fd.h"

namespace braid::base {
namespace {

/// Names of mappings that come from what is mapped. Others (plain dm-crypt, dmsetup by hand) repeat
/// what a person called them.
std::string mapping_name(const std::string& disk) {
  const std::string uuid = read_small_file(disk + "/dm/uuid");
  for (const std::string_view kind : {"LVM-", "mpath-", "CRYPT-LUKS"}) {
    if (uuid.starts_with(kind)) return uuid;
  }
  return {};
}

std::string lasting_name(const std::string& disk) {
  if (std::string name = mapping_name(disk); !name.empty()) return name;
  for (const char* place : {"/md/uuid", "/wwid", "/device/wwid", "/serial", "/device/serial"}) {
    if (std::string name = read_small_file(disk + place); !name.empty()) return name;
  }
  return {};
}

}  // namespace

std::string disk_identity(const std::string& folder, const std::string& numbers,
                          const std::string& boot_id) {
  const bool partition = ::access((folder + "/partition").c_str(), F_OK) == 0;
  const std::string disk = partition ? folder + "/.." : folder;
  const std::string start = partition ? read_small_file(folder + "/start") : "0";
  const std::string name = lasting_name(disk);
  if (!name.empty()) return fmt::format("disk:{}:{}", name, start);
  const std::string diskseq = read_small_file(disk + "/diskseq");
  return fmt::format("disk:{}:{}:{}:{}", numbers, start, diskseq, boot_id);
}

}  // namespace braid::base
